CREATE TABLE public.account_keys (
    account character varying(64) NOT NULL,
    wrapped_key bytea NOT NULL,
    created_at double precision NOT NULL
);
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.api_keys (
    key_id character varying(40) NOT NULL,
    name character varying(100) NOT NULL,
    account character varying(64) NOT NULL,
    organization character varying(64) NOT NULL,
    tier character varying(16) NOT NULL,
    requests_per_minute bigint,
    tokens_per_minute bigint,
    operations json,
    models json,
    retention character varying(16) NOT NULL,
    is_admin boolean NOT NULL,
    digest bytea NOT NULL,
    prefix character varying(16) NOT NULL,
    last_four character varying(4) NOT NULL,
    previous_digest bytea,
    previous_expires_at double precision,
    created_at double precision NOT NULL,
    rotated_at double precision,
    revoked_at double precision,
    expires_at double precision,
    revision bigint NOT NULL,
    regions json
);
CREATE TABLE public.audit_log (
    entry_id character varying(64) NOT NULL,
    at double precision NOT NULL,
    event character varying(64) NOT NULL,
    actor_kind character varying(16) NOT NULL,
    actor_id character varying(64) NOT NULL,
    account character varying(64),
    target character varying(128) NOT NULL,
    details json NOT NULL
);
CREATE TABLE public.batch_segments (
    segment_id character varying(64) NOT NULL,
    batch_id character varying(64) NOT NULL,
    epoch bigint NOT NULL,
    object_key character varying(128) NOT NULL,
    num_bytes bigint NOT NULL,
    entries bytea NOT NULL,
    wrapped_key bytea NOT NULL
);
CREATE TABLE public.batches (
    batch_id character varying(64) NOT NULL,
    account character varying(64) NOT NULL,
    key_id character varying(40) NOT NULL,
    principal json NOT NULL,
    endpoint character varying(64) NOT NULL,
    input_file_id character varying(64) NOT NULL,
    completion_window character varying(8) NOT NULL,
    output_expires_after_s integer,
    status character varying(16) NOT NULL,
    errors json,
    output_file_id character varying(64),
    error_file_id character varying(64),
    created_at double precision NOT NULL,
    in_progress_at double precision,
    expires_at double precision NOT NULL,
    finalizing_at double precision,
    completed_at double precision,
    failed_at double precision,
    expired_at double precision,
    cancelling_at double precision,
    cancelled_at double precision,
    num_total integer NOT NULL,
    num_completed integer NOT NULL,
    num_failed integer NOT NULL,
    prompt_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    enqueued_tokens bigint NOT NULL,
    epoch bigint NOT NULL,
    lease_until double precision NOT NULL,
    done bytea NOT NULL,
    wrapped_key bytea NOT NULL,
    sealed_metadata bytea,
    elapsed_s double precision,
    counted_at double precision,
    paused_at double precision
);
CREATE TABLE public.console_failures (
    address character varying(64) NOT NULL,
    minute bigint NOT NULL,
    num_failed bigint NOT NULL
);
CREATE TABLE public.console_links (
    token_digest bytea NOT NULL,
    key_digest bytea NOT NULL,
    expires_at double precision NOT NULL
);
CREATE TABLE public.console_sessions (
    token_digest bytea NOT NULL,
    key_digest bytea NOT NULL,
    expires_at double precision NOT NULL
);
CREATE TABLE public.containers (
    container_id character varying(64) NOT NULL,
    account character varying(64) NOT NULL,
    created_at double precision NOT NULL,
    last_active_at double precision NOT NULL,
    idle_s double precision NOT NULL,
    has_ended boolean NOT NULL,
    expires_at double precision NOT NULL,
    wrapped_key bytea NOT NULL,
    sealed_record bytea NOT NULL
);
CREATE TABLE public.conversation_items (
    conversation_id character varying(64) NOT NULL,
    item_id character varying(128) NOT NULL,
    "position" bigint NOT NULL,
    wrapped_key bytea NOT NULL,
    sealed_item bytea NOT NULL
);
CREATE TABLE public.conversations (
    conversation_id character varying(64) NOT NULL,
    account character varying(64) NOT NULL,
    created_at double precision NOT NULL,
    expires_at double precision NOT NULL,
    next_position bigint NOT NULL,
    wrapped_key bytea NOT NULL,
    sealed_metadata bytea NOT NULL
);
CREATE TABLE public.files (
    file_id character varying(64) NOT NULL,
    account character varying(64) NOT NULL,
    key_id character varying(40) NOT NULL,
    purpose character varying(32) NOT NULL,
    num_bytes bigint NOT NULL,
    created_at double precision NOT NULL,
    expires_at double precision NOT NULL,
    object_key character varying(128) NOT NULL,
    wrapped_key bytea NOT NULL,
    sealed_name bytea NOT NULL
);
CREATE TABLE public.ingress_replicas (
    region character varying(16) NOT NULL,
    address character varying(64) NOT NULL,
    seen_at double precision NOT NULL
);
CREATE TABLE public.latency_days (
    start bigint NOT NULL,
    account character varying(64) NOT NULL,
    model character varying(256) NOT NULL,
    metric character varying(8) NOT NULL,
    bucket integer NOT NULL,
    count bigint NOT NULL
);
CREATE TABLE public.latency_hours (
    start bigint NOT NULL,
    account character varying(64) NOT NULL,
    model character varying(256) NOT NULL,
    metric character varying(8) NOT NULL,
    bucket integer NOT NULL,
    count bigint NOT NULL
);
CREATE TABLE public.latency_minutes (
    start bigint NOT NULL,
    account character varying(64) NOT NULL,
    model character varying(256) NOT NULL,
    metric character varying(8) NOT NULL,
    bucket integer NOT NULL,
    count bigint NOT NULL
);
CREATE TABLE public.leaders (
    name character varying(32) NOT NULL,
    region character varying(16) NOT NULL,
    epoch bigint NOT NULL,
    lease_until double precision NOT NULL
);
CREATE TABLE public.limiter_charges (
    key_id character varying(40) NOT NULL,
    at double precision NOT NULL,
    version bigint NOT NULL,
    requests bytea NOT NULL,
    tokens bytea NOT NULL
);
CREATE TABLE public.limiter_state (
    name character varying(32) NOT NULL,
    journal character varying(40) NOT NULL,
    segment bigint NOT NULL,
    at double precision NOT NULL,
    stopped json
);
CREATE TABLE public.object_copies (
    store character varying(16) NOT NULL,
    object_key character varying(255) NOT NULL,
    is_deleted boolean NOT NULL,
    since double precision NOT NULL,
    token character varying(32) NOT NULL
);
CREATE TABLE public.object_stores (
    name character varying(16) NOT NULL,
    marker character varying(64) NOT NULL,
    is_written boolean NOT NULL
);
CREATE TABLE public.region_limiter_charges (
    region character varying(32) NOT NULL,
    key_id character varying(40) NOT NULL,
    at double precision NOT NULL,
    version bigint NOT NULL,
    requests bytea NOT NULL,
    tokens bytea NOT NULL
);
CREATE TABLE public.region_limiter_state (
    region character varying(32) NOT NULL,
    name character varying(32) NOT NULL,
    journal character varying(40) NOT NULL,
    segment bigint NOT NULL,
    at double precision NOT NULL,
    stopped json
);
CREATE TABLE public.regions (
    name character varying(16) NOT NULL,
    seen_at double precision NOT NULL,
    drained_at double precision,
    facts json NOT NULL
);
CREATE TABLE public.request_log (
    record_id character varying(64) NOT NULL,
    request_id character varying(128) NOT NULL,
    at double precision NOT NULL,
    key_id character varying(40),
    account character varying(64),
    tier character varying(16),
    method character varying(16) NOT NULL,
    route character varying(128) NOT NULL,
    model character varying(256),
    status integer NOT NULL,
    code character varying(64),
    stream boolean NOT NULL,
    prompt_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    ttft_s double precision,
    total_s double precision NOT NULL,
    service_tier character varying(16),
    discounted_tokens bigint DEFAULT '0'::bigint NOT NULL,
    operation character varying(32),
    queued_s double precision,
    file_search_calls bigint DEFAULT '0'::bigint NOT NULL,
    web_search_calls bigint DEFAULT '0'::bigint NOT NULL,
    code_sessions bigint DEFAULT '0'::bigint NOT NULL,
    input_cost bigint DEFAULT '0'::bigint NOT NULL,
    cached_cost bigint DEFAULT '0'::bigint NOT NULL,
    output_cost bigint DEFAULT '0'::bigint NOT NULL
);
CREATE TABLE public.response_events (
    response_id character varying(64) NOT NULL,
    first integer NOT NULL,
    last integer NOT NULL,
    sealed_events bytea NOT NULL,
    sealed_journal bytea
);
CREATE TABLE public.response_items (
    item_id character varying(128) NOT NULL,
    response_id character varying(64) NOT NULL
);
CREATE TABLE public.response_jobs (
    response_id character varying(64) NOT NULL,
    epoch bigint NOT NULL,
    lease_until double precision NOT NULL,
    is_cancelled boolean NOT NULL,
    was_followed boolean NOT NULL,
    num_events integer NOT NULL,
    sealed_job bytea NOT NULL
);
CREATE TABLE public.responses (
    response_id character varying(64) NOT NULL,
    account character varying(64) NOT NULL,
    previous_id character varying(64),
    status character varying(16) NOT NULL,
    created_at double precision NOT NULL,
    expires_at double precision NOT NULL,
    wrapped_key bytea NOT NULL,
    sealed_items bytea NOT NULL,
    sealed_response bytea NOT NULL
);
CREATE TABLE public.revisions (
    name character varying(32) NOT NULL,
    value bigint NOT NULL
);
CREATE TABLE public.upload_parts (
    part_id character varying(64) NOT NULL,
    upload_id character varying(64) NOT NULL,
    num_bytes bigint NOT NULL,
    created_at double precision NOT NULL,
    object_key character varying(128) NOT NULL,
    wrapped_key bytea NOT NULL
);
CREATE TABLE public.uploads (
    upload_id character varying(64) NOT NULL,
    account character varying(64) NOT NULL,
    key_id character varying(40) NOT NULL,
    purpose character varying(32) NOT NULL,
    status character varying(16) NOT NULL,
    num_bytes bigint NOT NULL,
    received_bytes bigint NOT NULL,
    num_parts integer NOT NULL,
    file_lifetime_s double precision NOT NULL,
    file_id character varying(64),
    completion bytea,
    created_at double precision NOT NULL,
    expires_at double precision NOT NULL,
    kept_until double precision NOT NULL,
    wrapped_key bytea NOT NULL,
    sealed_record bytea NOT NULL
);
CREATE TABLE public.usage (
    key_id character varying(40) NOT NULL,
    day date NOT NULL,
    model character varying(256) NOT NULL,
    account character varying(64) NOT NULL,
    num_requests bigint NOT NULL,
    num_errors bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    discounted_tokens bigint DEFAULT '0'::bigint NOT NULL
);
CREATE TABLE public.usage_days (
    start bigint NOT NULL,
    account character varying(64) NOT NULL,
    key_id character varying(40) NOT NULL,
    model character varying(256) NOT NULL,
    operation character varying(32) NOT NULL,
    is_batch boolean NOT NULL,
    service_tier character varying(16) NOT NULL,
    num_requests bigint NOT NULL,
    num_errors bigint NOT NULL,
    num_rate_limited bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    discounted_tokens bigint NOT NULL,
    file_search_calls bigint NOT NULL,
    web_search_calls bigint NOT NULL,
    code_sessions bigint NOT NULL,
    input_cost bigint NOT NULL,
    cached_cost bigint NOT NULL,
    output_cost bigint NOT NULL
);
CREATE TABLE public.usage_hours (
    start bigint NOT NULL,
    account character varying(64) NOT NULL,
    key_id character varying(40) NOT NULL,
    model character varying(256) NOT NULL,
    operation character varying(32) NOT NULL,
    is_batch boolean NOT NULL,
    service_tier character varying(16) NOT NULL,
    num_requests bigint NOT NULL,
    num_errors bigint NOT NULL,
    num_rate_limited bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    discounted_tokens bigint NOT NULL,
    file_search_calls bigint NOT NULL,
    web_search_calls bigint NOT NULL,
    code_sessions bigint NOT NULL,
    input_cost bigint NOT NULL,
    cached_cost bigint NOT NULL,
    output_cost bigint NOT NULL
);
CREATE TABLE public.usage_minutes (
    start bigint NOT NULL,
    account character varying(64) NOT NULL,
    key_id character varying(40) NOT NULL,
    model character varying(256) NOT NULL,
    operation character varying(32) NOT NULL,
    is_batch boolean NOT NULL,
    service_tier character varying(16) NOT NULL,
    num_requests bigint NOT NULL,
    num_errors bigint NOT NULL,
    num_rate_limited bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    discounted_tokens bigint NOT NULL,
    file_search_calls bigint NOT NULL,
    web_search_calls bigint NOT NULL,
    code_sessions bigint NOT NULL,
    input_cost bigint NOT NULL,
    cached_cost bigint NOT NULL,
    output_cost bigint NOT NULL
);
CREATE TABLE public.vector_store_batches (
    batch_id character varying(64) NOT NULL,
    store_id character varying(64) NOT NULL,
    account character varying(64) NOT NULL,
    created_at double precision NOT NULL,
    is_cancelled boolean NOT NULL
);
CREATE TABLE public.vector_store_bytes (
    width character varying(2) NOT NULL,
    start bigint NOT NULL,
    account character varying(64) NOT NULL,
    num_bytes bigint NOT NULL
);
CREATE TABLE public.vector_store_files (
    store_id character varying(64) NOT NULL,
    file_id character varying(64) NOT NULL,
    account character varying(64) NOT NULL,
    batch_id character varying(64),
    status character varying(16) NOT NULL,
    created_at double precision NOT NULL,
    expires_at double precision NOT NULL,
    usage_bytes bigint NOT NULL,
    error_code character varying(32),
    error_message character varying(500),
    run_id character varying(32) NOT NULL,
    num_claims integer NOT NULL,
    lease_until double precision NOT NULL,
    principal json NOT NULL,
    wrapped_key bytea NOT NULL,
    sealed_record bytea NOT NULL,
    lacking character varying(16)
);
CREATE TABLE public.vector_stores (
    store_id character varying(64) NOT NULL,
    account character varying(64) NOT NULL,
    embedding_model character varying(256) NOT NULL,
    created_at double precision NOT NULL,
    last_active_at double precision NOT NULL,
    expires_after_days integer,
    expires_at double precision,
    has_expired boolean NOT NULL,
    is_deleted boolean NOT NULL,
    revision bigint NOT NULL,
    is_dirty boolean NOT NULL,
    tidy_at double precision,
    wrapped_key bytea NOT NULL,
    sealed_record bytea NOT NULL
);
CREATE TABLE public.webhook_deliveries (
    event_id character varying(64) NOT NULL,
    endpoint_id character varying(64) NOT NULL,
    type character varying(64) NOT NULL,
    object_id character varying(64) NOT NULL,
    created_at double precision NOT NULL,
    due_at double precision NOT NULL,
    num_tries integer NOT NULL
);
CREATE TABLE public.webhook_endpoints (
    endpoint_id character varying(64) NOT NULL,
    account character varying(64) NOT NULL,
    event_types json NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    failing_since double precision,
    is_disabled boolean NOT NULL,
    wrapped_key bytea NOT NULL,
    sealed_record bytea NOT NULL,
    sealed_secret bytea NOT NULL,
    sealed_previous bytea,
    previous_until double precision
);
INSERT INTO public.account_keys VALUES ('acct', '\xa3ecf421368fa6b8d52173dbd7279cb1d6a767caaa1fed384a7d31bbc508283db04aee985fe5414d66cd9359fb1d2fcc6e0ce6a5bec5e8e261611a8d', 1795881139.900729);
INSERT INTO public.account_keys VALUES ('acct_1', '\xa2cc4ac9e907e8d371aaef292957eb1795367435d44e6fab9446498fe674fb04818046905b16976f3bb461c3f265b1a8b68f8441afe42296d982f742', 1795881139.918829);
INSERT INTO public.alembic_version VALUES ('v0021_index_copies');
INSERT INTO public.audit_log VALUES ('audit_log-f7623e8b6f8b1a04fd4239e61b4a156e', 1700000000, 'webhook_endpoint.created', 'service', 'manta', 'acct', 'whe_dab5d44ea4ad3295786b4d694fb7c68b', '{"event_types": ["batch.completed"]}');
INSERT INTO public.files VALUES ('file-1', 'acct', 'key-1', 'batch', 7, 1700000000, 1700003600, 'files/0b9f605c4ae2c71ee936f9a3be029036', '\x72be79bef50661c44df63969d3200a1e77c572a1871a490ce36280ff41757098076f3b12ed90e4cbd9445575028001cd4b110c31bcdd6e07aeec0002', '\xdad2e7bf0d5d041861cae0985af7a409a3b5bf4702c19889c5920b1469bdb4de49dc02b3');
INSERT INTO public.files VALUES ('file-2', 'acct', 'key-1', 'batch', 7, 1700000000, 1700003600, 'files/0ae3d1aeff437278853b314315c29fcb', '\xeb5cf70bf606e0eff8874ed2c7ec432fb29eab0e34a11083c32318ab75c783f5765779181d00a913e3f43793e56fa62d40f6f72fc6c668249b361fa3', '\xc57136ee177ac3191d067945c523864bdbc07e0ea679a1fe6d1801b832abec8e9c4a7bd1');
INSERT INTO public.response_events VALUES ('resp_a', 0, 1, '\x340b979015f1f97ad71f5ae2c95c6b35ac52e1f94577d3e1f8cfcf8051169a01dba375c588745e682db109', NULL);
INSERT INTO public.response_jobs VALUES ('resp_a', 1, 1700000010, false, false, 2, '\xb93155079cfa8de2d2e31924f686ab0978d392b7f5c05bba03de45f12663fb4d16f9da61824907');
INSERT INTO public.responses VALUES ('resp_a', 'acct_1', NULL, 'queued', 1700000000, 1700086400, '\x3b2d6f21c662bcc86a946f727d6beecf3b645fe0775b018dcdad0b09468492f07b142ff9dc4bcd90c2749330f3b975c1f4019c46d151ee1e5c3f06bd', '\xca83b8a3132dade9fba87e81b0d58cab9472fa8da60a61f1a4b9fb5e5b8aa980622e43cd47aa1fe2b5bc0f70b376bfedbe05386e96705b2d2754649c5e0f278b55057f057ff2a03d91e027bb49d79acfd8b9d68aea9e95aef413e6bcc1cce6903abef907b135b4748c6fde1c5dbee9616b3471d8cc3620b1de35c29e92a09dc4a63a32362057e3f177ed4a1276439ce9f11b7b9d45cd7970a036b94f57fb1412beead9d48edd6dcd8f4d5b3be85fa209169d509193a5d71362ee6c741ffc94f7a4a52594bdeca6337c', '\xfdf9ec678ae80dbcd9e14f2aa2003eef394ff44c30d1aec0acaac7562fb2ef95eb6ef48fe829105d5ed66914dd5c69549025e194995ef9b954bf2efcd2350d5c492b718fecb346f89d55f11bd3c40fce60d4a8c66bf2698715bb6a8c9c501ceeae71ec703bceb45b4fb08ccacad0427cc170f38cc55700c8029217496d2ec2f3c89b641e28ad704f1ee8eeee2868a694a5af6eb51853bc70c6da4d1ffecbdf313f89af2a3d173cd3f174f5ba9de0970daa19561a');
INSERT INTO public.revisions VALUES ('api_keys', 0);
INSERT INTO public.vector_store_files VALUES ('vs_1', 'file-1', 'acct', NULL, 'in_progress', 1700000000, 1700003600, 0, NULL, NULL, '', 0, 0, '{"key_id": "key_1", "account": "acct", "organization": "org-one", "tier": "standard", "requests_per_minute": 1000, "tokens_per_minute": 1000000, "operations": ["file_search"], "models": ["a/*"], "retention": "ephemeral", "expires_at": null, "is_admin": false, "regions": null}', '\x0b0131f9c91ec46eb1a44a8584086f9a8e1065ec08d5c21253d3596f09bbcdefaad1cbda3ece7a9ce9230168bd7b810d78dad5a1fee7f190406d6bce', '\xebc04ceb35379044e641facd496967e944c0bfa28f3b391f2bdd69d2ff7c54c535c461bbfb05d4c9f17ca40d2b0e07e332eacdad7dd51d10eda67cf6ca338abc196044a2c7ba6ad8a365e6aa30199bf1e43e633ac398147e51dc6d57e74c030f0352cbd92bc62ca4950c460546b3caa5a5fc304040feffae531becf32a9a43d0', NULL);
INSERT INTO public.vector_store_files VALUES ('vs_1', 'file-2', 'acct', NULL, 'in_progress', 1700000000, 1700003600, 0, NULL, NULL, '', 0, 0, '{"key_id": "key_1", "account": "acct", "organization": "org-one", "tier": "standard", "requests_per_minute": 1000, "tokens_per_minute": 1000000, "operations": ["file_search"], "models": ["a/*"], "retention": "ephemeral", "expires_at": null, "is_admin": false, "regions": null}', '\x4d0cb174884db2dc8fbbb7cc5b80be45dc19b9aa5f14bfa0a79cf11535559ff520e493c5284ba444135a8112ebc409093eebc6a749af0692d7ddabc3', '\x7b07d16c4501502f6cdc8df3171df301977a7f7b932988d5075f5e4daaf0eef9bc12e850b5f8ba38529385238b72f39be723a15f0faa27f07bab1c4a88305fee56e9f13c8b129a993987f75e762172c99c1c50aae2c8217a0d4f2370821be91527e278743efc53553b5cb714b7631cb6e84834a1ca0fe227ada0edd1e6ab757b', NULL);
INSERT INTO public.vector_stores VALUES ('vs_1', 'acct', 'model', 1700000000, 1700000000, NULL, NULL, false, false, 2, true, 1700000000, '\x40e3f670b4b43d27055fae5435ba89a5f9255a8d6c4890c965e43c4ea808274921ab2a1b7bd66493755bfe933919c5b4d2b357c119cf3388f56c2eee', '\x90878cf30d3a61436528bca1dd773aeb8df369af4fb9884ded0307a8652c37077a3e12beda19ff18');
INSERT INTO public.webhook_deliveries VALUES ('evt_e07dd557a65e9dbdde36294c2637d7b7', 'whe_dab5d44ea4ad3295786b4d694fb7c68b', 'batch.completed', 'batch_1', 1700000000, 1700000000, 0);
INSERT INTO public.webhook_endpoints VALUES ('whe_dab5d44ea4ad3295786b4d694fb7c68b', 'acct', '["batch.completed"]', 1700000000, 1700000000, NULL, false, '\x7bad2b94ac1ec4aa5268b4ebd36b3ee45f6ece542218d592105558700fde7730e113e2eba2b58f35e0169d07e17aad4627b94851659b8bd3cf4b5804', '\x4fac89838e12007ebe03151fe9c5b6040e2ecedd5bc7e95ff1e64a177eb4a3bfc2c74f8564d2e4712511eb90344a1269064bed704fe6b0f6e260abca62e3d1ad2e03fce821d78c2a9db0cd5e77d97413236d1b2ef9f0652adb4aa03ab3d1ccbf9d0321aa', '\xaf23b147a6936b862d73ac412f480cbee640799d276962964a187d49bfe3490e0c55623555a8cd5cac6a5db53c47c7a4ae0ba322a0e94e4b49a80c7a9f349ef61ba0224f689f36f494bb27d98781', NULL, NULL);
ALTER TABLE ONLY public.account_keys
    ADD CONSTRAINT account_keys_pkey PRIMARY KEY (account);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_digest_key UNIQUE (digest);
ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (key_id);
ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_previous_digest_key UNIQUE (previous_digest);
ALTER TABLE ONLY public.audit_log
    ADD CONSTRAINT audit_log_pkey PRIMARY KEY (entry_id);
ALTER TABLE ONLY public.batch_segments
    ADD CONSTRAINT batch_segments_pkey PRIMARY KEY (segment_id);
ALTER TABLE ONLY public.batches
    ADD CONSTRAINT batches_pkey PRIMARY KEY (batch_id);
ALTER TABLE ONLY public.console_failures
    ADD CONSTRAINT console_failures_pkey PRIMARY KEY (address, minute);
ALTER TABLE ONLY public.console_links
    ADD CONSTRAINT console_links_pkey PRIMARY KEY (token_digest);
ALTER TABLE ONLY public.console_sessions
    ADD CONSTRAINT console_sessions_pkey PRIMARY KEY (token_digest);
ALTER TABLE ONLY public.containers
    ADD CONSTRAINT containers_pkey PRIMARY KEY (container_id);
ALTER TABLE ONLY public.conversation_items
    ADD CONSTRAINT conversation_items_pkey PRIMARY KEY (conversation_id, item_id);
ALTER TABLE ONLY public.conversations
    ADD CONSTRAINT conversations_pkey PRIMARY KEY (conversation_id);
ALTER TABLE ONLY public.files
    ADD CONSTRAINT files_pkey PRIMARY KEY (file_id);
ALTER TABLE ONLY public.ingress_replicas
    ADD CONSTRAINT ingress_replicas_pkey PRIMARY KEY (region, address);
ALTER TABLE ONLY public.latency_days
    ADD CONSTRAINT latency_days_pkey PRIMARY KEY (start, account, model, metric, bucket);
ALTER TABLE ONLY public.latency_hours
    ADD CONSTRAINT latency_hours_pkey PRIMARY KEY (start, account, model, metric, bucket);
ALTER TABLE ONLY public.latency_minutes
    ADD CONSTRAINT latency_minutes_pkey PRIMARY KEY (start, account, model, metric, bucket);
ALTER TABLE ONLY public.leaders
    ADD CONSTRAINT leaders_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.limiter_charges
    ADD CONSTRAINT limiter_charges_pkey PRIMARY KEY (key_id);
ALTER TABLE ONLY public.limiter_state
    ADD CONSTRAINT limiter_state_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.object_copies
    ADD CONSTRAINT object_copies_pkey PRIMARY KEY (store, object_key);
ALTER TABLE ONLY public.object_stores
    ADD CONSTRAINT object_stores_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.region_limiter_charges
    ADD CONSTRAINT region_limiter_charges_pkey PRIMARY KEY (region, key_id);
ALTER TABLE ONLY public.region_limiter_state
    ADD CONSTRAINT region_limiter_state_pkey PRIMARY KEY (region, name);
ALTER TABLE ONLY public.regions
    ADD CONSTRAINT regions_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.request_log
    ADD CONSTRAINT request_log_pkey PRIMARY KEY (record_id);
ALTER TABLE ONLY public.response_events
    ADD CONSTRAINT response_events_pkey PRIMARY KEY (response_id, first);
ALTER TABLE ONLY public.response_items
    ADD CONSTRAINT response_items_pkey PRIMARY KEY (item_id, response_id);
ALTER TABLE ONLY public.response_jobs
    ADD CONSTRAINT response_jobs_pkey PRIMARY KEY (response_id);
ALTER TABLE ONLY public.responses
    ADD CONSTRAINT responses_pkey PRIMARY KEY (response_id);
ALTER TABLE ONLY public.revisions
    ADD CONSTRAINT revisions_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.upload_parts
    ADD CONSTRAINT upload_parts_pkey PRIMARY KEY (part_id);
ALTER TABLE ONLY public.uploads
    ADD CONSTRAINT uploads_pkey PRIMARY KEY (upload_id);
ALTER TABLE ONLY public.usage_days
    ADD CONSTRAINT usage_days_pkey PRIMARY KEY (start, account, key_id, model, operation, is_batch, service_tier);
ALTER TABLE ONLY public.usage_hours
    ADD CONSTRAINT usage_hours_pkey PRIMARY KEY (start, account, key_id, model, operation, is_batch, service_tier);
ALTER TABLE ONLY public.usage_minutes
    ADD CONSTRAINT usage_minutes_pkey PRIMARY KEY (start, account, key_id, model, operation, is_batch, service_tier);
ALTER TABLE ONLY public.usage
    ADD CONSTRAINT usage_pkey PRIMARY KEY (key_id, day, model);
ALTER TABLE ONLY public.vector_store_batches
    ADD CONSTRAINT vector_store_batches_pkey PRIMARY KEY (batch_id);
ALTER TABLE ONLY public.vector_store_bytes
    ADD CONSTRAINT vector_store_bytes_pkey PRIMARY KEY (width, start, account);
ALTER TABLE ONLY public.vector_store_files
    ADD CONSTRAINT vector_store_files_pkey PRIMARY KEY (store_id, file_id);
ALTER TABLE ONLY public.vector_stores
    ADD CONSTRAINT vector_stores_pkey PRIMARY KEY (store_id);
ALTER TABLE ONLY public.webhook_deliveries
    ADD CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (event_id, endpoint_id);
ALTER TABLE ONLY public.webhook_endpoints
    ADD CONSTRAINT webhook_endpoints_pkey PRIMARY KEY (endpoint_id);
CREATE INDEX ix_api_keys_account ON public.api_keys USING btree (account, created_at);
CREATE INDEX ix_api_keys_revision ON public.api_keys USING btree (revision);
CREATE INDEX ix_audit_log_at ON public.audit_log USING btree (at, entry_id);
CREATE INDEX ix_batch_segments_batch_id ON public.batch_segments USING btree (batch_id);
CREATE INDEX ix_batch_segments_object_key ON public.batch_segments USING btree (object_key);
CREATE INDEX ix_batches_account ON public.batches USING btree (account, created_at, batch_id);
CREATE INDEX ix_batches_input_file_id ON public.batches USING btree (input_file_id);
CREATE INDEX ix_batches_status ON public.batches USING btree (status);
CREATE INDEX ix_console_links_expires_at ON public.console_links USING btree (expires_at);
CREATE INDEX ix_console_sessions_expires_at ON public.console_sessions USING btree (expires_at);
CREATE INDEX ix_containers_account ON public.containers USING btree (account, created_at, container_id);
CREATE INDEX ix_containers_expires_at ON public.containers USING btree (expires_at);
CREATE INDEX ix_conversation_items_position ON public.conversation_items USING btree (conversation_id, "position");
CREATE INDEX ix_conversations_account ON public.conversations USING btree (account, created_at, conversation_id);
CREATE INDEX ix_conversations_expires_at ON public.conversations USING btree (expires_at);
CREATE INDEX ix_files_account ON public.files USING btree (account, created_at, file_id);
CREATE INDEX ix_files_expires_at ON public.files USING btree (expires_at);
CREATE INDEX ix_files_object_key ON public.files USING btree (object_key);
CREATE INDEX ix_ingress_replicas_seen_at ON public.ingress_replicas USING btree (seen_at);
CREATE INDEX ix_latency_days_account ON public.latency_days USING btree (account, start);
CREATE INDEX ix_latency_hours_account ON public.latency_hours USING btree (account, start);
CREATE INDEX ix_latency_minutes_account ON public.latency_minutes USING btree (account, start);
CREATE INDEX ix_limiter_charges_at ON public.limiter_charges USING btree (at);
CREATE INDEX ix_object_copies_store_since ON public.object_copies USING btree (store, since);
CREATE INDEX ix_region_limiter_charges_at ON public.region_limiter_charges USING btree (at);
CREATE INDEX ix_request_log_account ON public.request_log USING btree (account, at);
CREATE INDEX ix_request_log_at ON public.request_log USING btree (at);
CREATE INDEX ix_request_log_before ON public.request_log USING btree (record_id) WHERE (operation IS NULL);
CREATE INDEX ix_request_log_key ON public.request_log USING btree (key_id, at);
CREATE INDEX ix_response_items_response ON public.response_items USING btree (response_id);
CREATE INDEX ix_response_jobs_lease_until ON public.response_jobs USING btree (lease_until);
CREATE INDEX ix_responses_account ON public.responses USING btree (account, created_at, response_id);
CREATE INDEX ix_responses_expires_at ON public.responses USING btree (expires_at);
CREATE INDEX ix_responses_previous_id ON public.responses USING btree (previous_id);
CREATE INDEX ix_upload_parts_object_key ON public.upload_parts USING btree (object_key);
CREATE INDEX ix_upload_parts_upload_id ON public.upload_parts USING btree (upload_id);
CREATE INDEX ix_uploads_account ON public.uploads USING btree (account, status);
CREATE INDEX ix_uploads_kept_until ON public.uploads USING btree (kept_until);
CREATE INDEX ix_usage_account ON public.usage USING btree (account, day);
CREATE INDEX ix_usage_day ON public.usage USING btree (day);
CREATE INDEX ix_usage_days_account ON public.usage_days USING btree (account, start);
CREATE INDEX ix_usage_hours_account ON public.usage_hours USING btree (account, start);
CREATE INDEX ix_usage_minutes_account ON public.usage_minutes USING btree (account, start);
CREATE INDEX ix_vector_store_batches_store_id ON public.vector_store_batches USING btree (store_id);
CREATE INDEX ix_vector_store_files_batch_id ON public.vector_store_files USING btree (batch_id);
CREATE INDEX ix_vector_store_files_expires_at ON public.vector_store_files USING btree (expires_at);
CREATE INDEX ix_vector_store_files_file ON public.vector_store_files USING btree (file_id);
CREATE INDEX ix_vector_store_files_order ON public.vector_store_files USING btree (store_id, created_at, file_id);
CREATE INDEX ix_vector_store_files_work ON public.vector_store_files USING btree (status, lease_until);
CREATE INDEX ix_vector_stores_account ON public.vector_stores USING btree (account, created_at, store_id);
CREATE INDEX ix_vector_stores_expires_at ON public.vector_stores USING btree (expires_at);
CREATE INDEX ix_vector_stores_tidy_at ON public.vector_stores USING btree (tidy_at);
CREATE INDEX ix_webhook_deliveries_due_at ON public.webhook_deliveries USING btree (due_at);
CREATE INDEX ix_webhook_deliveries_endpoint_id ON public.webhook_deliveries USING btree (endpoint_id);
CREATE INDEX ix_webhook_endpoints_account ON public.webhook_endpoints USING btree (account, created_at);
