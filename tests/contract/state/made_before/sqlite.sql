BEGIN TRANSACTION;
CREATE TABLE account_keys (
	account VARCHAR(64) NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	created_at DOUBLE NOT NULL, 
	PRIMARY KEY (account)
);
INSERT INTO "account_keys" VALUES('acct',X'A60354AC7E389E540D47B09995681CE1AAA307AB7A6424C4A905AFF6F8E4215B10366C15EBAEACFD0DAC60525018B85AA8B66210EBA1520339F3A12C',1.79588113897236514087e+09);
INSERT INTO "account_keys" VALUES('acct_1',X'E6F8C9516670A0B8BC5DD9C89D26DE290E9521D5F48392EBF6BAB5BD0C718C1D7DEF4B86B57B567390B840B7B9985F8282C7E31A89EB50C4741AE79F',1.79588113899668502804e+09);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v0021_index_copies');
CREATE TABLE api_keys (
	key_id VARCHAR(40) NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	organization VARCHAR(64) NOT NULL, 
	tier VARCHAR(16) NOT NULL, 
	requests_per_minute BIGINT, 
	tokens_per_minute BIGINT, 
	operations JSON, 
	models JSON, 
	retention VARCHAR(16) NOT NULL, 
	is_admin BOOLEAN NOT NULL, 
	digest BLOB NOT NULL, 
	prefix VARCHAR(16) NOT NULL, 
	last_four VARCHAR(4) NOT NULL, 
	previous_digest BLOB, 
	previous_expires_at DOUBLE, 
	created_at DOUBLE NOT NULL, 
	rotated_at DOUBLE, 
	revoked_at DOUBLE, 
	expires_at DOUBLE, 
	revision BIGINT NOT NULL, regions JSON, 
	PRIMARY KEY (key_id), 
	UNIQUE (digest), 
	UNIQUE (previous_digest)
);
CREATE TABLE audit_log (
	entry_id VARCHAR(64) NOT NULL, 
	at DOUBLE NOT NULL, 
	event VARCHAR(64) NOT NULL, 
	actor_kind VARCHAR(16) NOT NULL, 
	actor_id VARCHAR(64) NOT NULL, 
	account VARCHAR(64), 
	target VARCHAR(128) NOT NULL, 
	details JSON NOT NULL, 
	PRIMARY KEY (entry_id)
);
INSERT INTO "audit_log" VALUES('audit_log-991d7f9b0ef38d8c193d914b81c6e78f',1700000000.0,'webhook_endpoint.created','service','manta','acct','whe_2199aa9dcef0dd009619c361729cc586','{"event_types": ["batch.completed"]}');
CREATE TABLE batch_segments (
	segment_id VARCHAR(64) NOT NULL, 
	batch_id VARCHAR(64) NOT NULL, 
	epoch BIGINT NOT NULL, 
	object_key VARCHAR(128) NOT NULL, 
	num_bytes BIGINT NOT NULL, 
	entries BLOB NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	PRIMARY KEY (segment_id)
);
CREATE TABLE batches (
	batch_id VARCHAR(64) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	key_id VARCHAR(40) NOT NULL, 
	principal JSON NOT NULL, 
	endpoint VARCHAR(64) NOT NULL, 
	input_file_id VARCHAR(64) NOT NULL, 
	completion_window VARCHAR(8) NOT NULL, 
	output_expires_after_s INTEGER, 
	status VARCHAR(16) NOT NULL, 
	errors JSON, 
	output_file_id VARCHAR(64), 
	error_file_id VARCHAR(64), 
	created_at DOUBLE NOT NULL, 
	in_progress_at DOUBLE, 
	expires_at DOUBLE NOT NULL, 
	finalizing_at DOUBLE, 
	completed_at DOUBLE, 
	failed_at DOUBLE, 
	expired_at DOUBLE, 
	cancelling_at DOUBLE, 
	cancelled_at DOUBLE, 
	num_total INTEGER NOT NULL, 
	num_completed INTEGER NOT NULL, 
	num_failed INTEGER NOT NULL, 
	prompt_tokens BIGINT NOT NULL, 
	completion_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	reasoning_tokens BIGINT NOT NULL, 
	enqueued_tokens BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	lease_until DOUBLE NOT NULL, 
	done BLOB NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	sealed_metadata BLOB, elapsed_s DOUBLE, counted_at DOUBLE, paused_at DOUBLE, 
	PRIMARY KEY (batch_id)
);
CREATE TABLE console_failures (
	address VARCHAR(64) NOT NULL, 
	minute BIGINT NOT NULL, 
	num_failed BIGINT NOT NULL, 
	PRIMARY KEY (address, minute)
);
CREATE TABLE console_links (
	token_digest BLOB NOT NULL, 
	key_digest BLOB NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	PRIMARY KEY (token_digest)
);
CREATE TABLE console_sessions (
	token_digest BLOB NOT NULL, 
	key_digest BLOB NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	PRIMARY KEY (token_digest)
);
CREATE TABLE containers (
	container_id VARCHAR(64) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	last_active_at DOUBLE NOT NULL, 
	idle_s DOUBLE NOT NULL, 
	has_ended BOOLEAN NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	sealed_record BLOB NOT NULL, 
	PRIMARY KEY (container_id)
);
CREATE TABLE conversation_items (
	conversation_id VARCHAR(64) NOT NULL, 
	item_id VARCHAR(128) NOT NULL, 
	position BIGINT NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	sealed_item BLOB NOT NULL, 
	PRIMARY KEY (conversation_id, item_id)
);
CREATE TABLE conversations (
	conversation_id VARCHAR(64) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	next_position BIGINT NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	sealed_metadata BLOB NOT NULL, 
	PRIMARY KEY (conversation_id)
);
CREATE TABLE files (
	file_id VARCHAR(64) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	key_id VARCHAR(40) NOT NULL, 
	purpose VARCHAR(32) NOT NULL, 
	num_bytes BIGINT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	object_key VARCHAR(128) NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	sealed_name BLOB NOT NULL, 
	PRIMARY KEY (file_id)
);
INSERT INTO "files" VALUES('file-1','acct','key-1','batch',7,1700000000.0,1700003600.0,'files/b474cafe2ec5db688fc1053d7fb6c072',X'6DBAF28FFD355188D645C85052FA0F79AE4EEA9697880F99AE5C3E4D75244987726050B19E80981F3B29A361EFBF92CFEDA726F9F72C600CA09EAE12',X'42E3C7B17C4DE669F57B08FC9156D6B3956AEA4BC6A4D0E8A4DABB6FC9432ABAC49A6B3F');
INSERT INTO "files" VALUES('file-2','acct','key-1','batch',7,1700000000.0,1700003600.0,'files/560e013bd8d0164965c5dc8afdee4e8c',X'E0A165CCAFFEBD641BC36DCAC9932261CCEE7810DA6179BA0632EB751C15C1A9D562808771775A80F6DE755D00CDF7D97A963B2DF56D60C92E0508C1',X'C313A231E9210C92F8337AAD96BE47282D5468B06271B221211461E5736685537BF69A9C');
CREATE TABLE ingress_replicas (
	region VARCHAR(16) NOT NULL, 
	address VARCHAR(64) NOT NULL, 
	seen_at DOUBLE NOT NULL, 
	PRIMARY KEY (region, address)
);
CREATE TABLE latency_days (
	start BIGINT NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	model VARCHAR(256) NOT NULL, 
	metric VARCHAR(8) NOT NULL, 
	bucket INTEGER NOT NULL, 
	count BIGINT NOT NULL, 
	PRIMARY KEY (start, account, model, metric, bucket)
)
 WITHOUT ROWID

;
CREATE TABLE latency_hours (
	start BIGINT NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	model VARCHAR(256) NOT NULL, 
	metric VARCHAR(8) NOT NULL, 
	bucket INTEGER NOT NULL, 
	count BIGINT NOT NULL, 
	PRIMARY KEY (start, account, model, metric, bucket)
)
 WITHOUT ROWID

;
CREATE TABLE latency_minutes (
	start BIGINT NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	model VARCHAR(256) NOT NULL, 
	metric VARCHAR(8) NOT NULL, 
	bucket INTEGER NOT NULL, 
	count BIGINT NOT NULL, 
	PRIMARY KEY (start, account, model, metric, bucket)
)
 WITHOUT ROWID

;
CREATE TABLE leaders (
	name VARCHAR(32) NOT NULL, 
	region VARCHAR(16) NOT NULL, 
	epoch BIGINT NOT NULL, 
	lease_until DOUBLE NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE limiter_charges (
	key_id VARCHAR(40) NOT NULL, 
	at DOUBLE NOT NULL, 
	version BIGINT NOT NULL, 
	requests BLOB NOT NULL, 
	tokens BLOB NOT NULL, 
	PRIMARY KEY (key_id)
);
CREATE TABLE limiter_state (
	name VARCHAR(32) NOT NULL, 
	journal VARCHAR(40) NOT NULL, 
	segment BIGINT NOT NULL, 
	at DOUBLE NOT NULL, stopped JSON, 
	PRIMARY KEY (name)
);
CREATE TABLE object_copies (
	store VARCHAR(16) NOT NULL, 
	object_key VARCHAR(255) NOT NULL, 
	is_deleted BOOLEAN NOT NULL, 
	since DOUBLE NOT NULL, 
	token VARCHAR(32) NOT NULL, 
	PRIMARY KEY (store, object_key)
);
CREATE TABLE object_stores (
	name VARCHAR(16) NOT NULL, 
	marker VARCHAR(64) NOT NULL, 
	is_written BOOLEAN NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE region_limiter_charges (
	region VARCHAR(32) NOT NULL, 
	key_id VARCHAR(40) NOT NULL, 
	at DOUBLE NOT NULL, 
	version BIGINT NOT NULL, 
	requests BLOB NOT NULL, 
	tokens BLOB NOT NULL, 
	PRIMARY KEY (region, key_id)
);
CREATE TABLE region_limiter_state (
	region VARCHAR(32) NOT NULL, 
	name VARCHAR(32) NOT NULL, 
	journal VARCHAR(40) NOT NULL, 
	segment BIGINT NOT NULL, 
	at DOUBLE NOT NULL, stopped JSON, 
	PRIMARY KEY (region, name)
);
CREATE TABLE regions (
	name VARCHAR(16) NOT NULL, 
	seen_at DOUBLE NOT NULL, 
	drained_at DOUBLE, 
	facts JSON NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE request_log (
	record_id VARCHAR(64) NOT NULL, 
	request_id VARCHAR(128) NOT NULL, 
	at DOUBLE NOT NULL, 
	key_id VARCHAR(40), 
	account VARCHAR(64), 
	tier VARCHAR(16), 
	method VARCHAR(16) NOT NULL, 
	route VARCHAR(128) NOT NULL, 
	model VARCHAR(256), 
	status INTEGER NOT NULL, 
	code VARCHAR(64), 
	stream BOOLEAN NOT NULL, 
	prompt_tokens BIGINT NOT NULL, 
	completion_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	ttft_s DOUBLE, 
	total_s DOUBLE NOT NULL, service_tier VARCHAR(16), discounted_tokens BIGINT DEFAULT '0' NOT NULL, operation VARCHAR(32), queued_s DOUBLE, file_search_calls BIGINT DEFAULT '0' NOT NULL, web_search_calls BIGINT DEFAULT '0' NOT NULL, code_sessions BIGINT DEFAULT '0' NOT NULL, input_cost BIGINT DEFAULT '0' NOT NULL, cached_cost BIGINT DEFAULT '0' NOT NULL, output_cost BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (record_id)
);
CREATE TABLE response_events (
	response_id VARCHAR(64) NOT NULL, 
	first INTEGER NOT NULL, 
	last INTEGER NOT NULL, 
	sealed_events BLOB NOT NULL, sealed_journal BLOB, 
	PRIMARY KEY (response_id, first)
);
INSERT INTO "response_events" VALUES('resp_a',0,1,X'3B3AF888C69D65FE88B8CAD9FC0B78BE9FF76ABB6CE4D66A750A6068096E6206CDFB3820A6FB2BB0E81B3D',NULL);
CREATE TABLE response_items (
	item_id VARCHAR(128) NOT NULL, 
	response_id VARCHAR(64) NOT NULL, 
	PRIMARY KEY (item_id, response_id)
);
CREATE TABLE response_jobs (
	response_id VARCHAR(64) NOT NULL, 
	epoch BIGINT NOT NULL, 
	lease_until DOUBLE NOT NULL, 
	is_cancelled BOOLEAN NOT NULL, 
	was_followed BOOLEAN NOT NULL, 
	num_events INTEGER NOT NULL, 
	sealed_job BLOB NOT NULL, 
	PRIMARY KEY (response_id)
);
INSERT INTO "response_jobs" VALUES('resp_a',1,1700000010.0,0,0,2,X'289EC4163D3065DE3A1FCA0D5F8A596D361DC06D732168B412DD4A9E3407B690F1E51183F924C2');
CREATE TABLE responses (
	response_id VARCHAR(64) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	previous_id VARCHAR(64), 
	status VARCHAR(16) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	sealed_items BLOB NOT NULL, 
	sealed_response BLOB NOT NULL, 
	PRIMARY KEY (response_id)
);
INSERT INTO "responses" VALUES('resp_a','acct_1',NULL,'queued',1700000000.0,1700086400.0,X'41435D55C6B11C9AF6C270F12FD08BF8ECBD9029351E53CD257B0206832B1D707C5BC10F999FE45656A4CB71585B0E10D62F8386F608FD3267214A49',X'53978586EABEC2B9633D233F7397872EBC9E700C214B490FA85B514A3A393294D3FED1ACC1980C15EA7AD30A9A346D2B13C3444EA3AAC89D2B126428AEE66CFCCF64800CC44B4565818EDA117CEAFEB26472813990246215D7F56187638B6F12C654715BF8E27B0537BDA3FB5D8A4C8671D3B7DC0CB6D79C832F3BDCBC377051FD4CB504D642983CA669C9B88B5984F9CBC7E4CCC86886DC96C2B525EB8A8C5C667B6F07A2F0197B84E10BB47808A9F83B4FDC08EFB7B39D925A3DFCAEBDBBC896EAFC58E222A610E7',X'A9737A742FE4BE2A95699D5BF1719006B60D28FB019BDADD7B10E2A702B01DD7B425F2DE67984CECCDEC5E0D576673D246653280F037EE48A105E745C5E80ABC814F0A72292F3F9CA3E0505D31CEB2AA312B8B4F400D736C6BCDC88C04DE80D9FAA99EDEF8E566BA5A0534D997BCEAAE2D69DB065C799C21A8A1C294C0FD54E3959D297C4ED560CEFBD988E6BB13AB492D87109768CC3495363752271F26DF4EF7B74A52B787FBC5F6EC39EB798881665CC2D5F8');
CREATE TABLE revisions (
	name VARCHAR(32) NOT NULL, 
	value BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "revisions" VALUES('api_keys',0);
CREATE TABLE upload_parts (
	part_id VARCHAR(64) NOT NULL, 
	upload_id VARCHAR(64) NOT NULL, 
	num_bytes BIGINT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	object_key VARCHAR(128) NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	PRIMARY KEY (part_id)
);
CREATE TABLE uploads (
	upload_id VARCHAR(64) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	key_id VARCHAR(40) NOT NULL, 
	purpose VARCHAR(32) NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	num_bytes BIGINT NOT NULL, 
	received_bytes BIGINT NOT NULL, 
	num_parts INTEGER NOT NULL, 
	file_lifetime_s DOUBLE NOT NULL, 
	file_id VARCHAR(64), 
	completion BLOB, 
	created_at DOUBLE NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	kept_until DOUBLE NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	sealed_record BLOB NOT NULL, 
	PRIMARY KEY (upload_id)
);
CREATE TABLE usage (
	key_id VARCHAR(40) NOT NULL, 
	day DATE NOT NULL, 
	model VARCHAR(256) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	num_requests BIGINT NOT NULL, 
	num_errors BIGINT NOT NULL, 
	prompt_tokens BIGINT NOT NULL, 
	completion_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, discounted_tokens BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (key_id, day, model)
);
CREATE TABLE usage_days (
	start BIGINT NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	key_id VARCHAR(40) NOT NULL, 
	model VARCHAR(256) NOT NULL, 
	operation VARCHAR(32) NOT NULL, 
	is_batch BOOLEAN NOT NULL, 
	service_tier VARCHAR(16) NOT NULL, 
	num_requests BIGINT NOT NULL, 
	num_errors BIGINT NOT NULL, 
	num_rate_limited BIGINT NOT NULL, 
	prompt_tokens BIGINT NOT NULL, 
	completion_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	discounted_tokens BIGINT NOT NULL, 
	file_search_calls BIGINT NOT NULL, 
	web_search_calls BIGINT NOT NULL, 
	code_sessions BIGINT NOT NULL, 
	input_cost BIGINT NOT NULL, 
	cached_cost BIGINT NOT NULL, 
	output_cost BIGINT NOT NULL, 
	PRIMARY KEY (start, account, key_id, model, operation, is_batch, service_tier)
)
 WITHOUT ROWID

;
CREATE TABLE usage_hours (
	start BIGINT NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	key_id VARCHAR(40) NOT NULL, 
	model VARCHAR(256) NOT NULL, 
	operation VARCHAR(32) NOT NULL, 
	is_batch BOOLEAN NOT NULL, 
	service_tier VARCHAR(16) NOT NULL, 
	num_requests BIGINT NOT NULL, 
	num_errors BIGINT NOT NULL, 
	num_rate_limited BIGINT NOT NULL, 
	prompt_tokens BIGINT NOT NULL, 
	completion_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	discounted_tokens BIGINT NOT NULL, 
	file_search_calls BIGINT NOT NULL, 
	web_search_calls BIGINT NOT NULL, 
	code_sessions BIGINT NOT NULL, 
	input_cost BIGINT NOT NULL, 
	cached_cost BIGINT NOT NULL, 
	output_cost BIGINT NOT NULL, 
	PRIMARY KEY (start, account, key_id, model, operation, is_batch, service_tier)
)
 WITHOUT ROWID

;
CREATE TABLE usage_minutes (
	start BIGINT NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	key_id VARCHAR(40) NOT NULL, 
	model VARCHAR(256) NOT NULL, 
	operation VARCHAR(32) NOT NULL, 
	is_batch BOOLEAN NOT NULL, 
	service_tier VARCHAR(16) NOT NULL, 
	num_requests BIGINT NOT NULL, 
	num_errors BIGINT NOT NULL, 
	num_rate_limited BIGINT NOT NULL, 
	prompt_tokens BIGINT NOT NULL, 
	completion_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	discounted_tokens BIGINT NOT NULL, 
	file_search_calls BIGINT NOT NULL, 
	web_search_calls BIGINT NOT NULL, 
	code_sessions BIGINT NOT NULL, 
	input_cost BIGINT NOT NULL, 
	cached_cost BIGINT NOT NULL, 
	output_cost BIGINT NOT NULL, 
	PRIMARY KEY (start, account, key_id, model, operation, is_batch, service_tier)
)
 WITHOUT ROWID

;
CREATE TABLE vector_store_batches (
	batch_id VARCHAR(64) NOT NULL, 
	store_id VARCHAR(64) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	is_cancelled BOOLEAN NOT NULL, 
	PRIMARY KEY (batch_id)
);
CREATE TABLE vector_store_bytes (
	width VARCHAR(2) NOT NULL, 
	start BIGINT NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	num_bytes BIGINT NOT NULL, 
	PRIMARY KEY (width, start, account)
);
CREATE TABLE vector_store_files (
	store_id VARCHAR(64) NOT NULL, 
	file_id VARCHAR(64) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	batch_id VARCHAR(64), 
	status VARCHAR(16) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	expires_at DOUBLE NOT NULL, 
	usage_bytes BIGINT NOT NULL, 
	error_code VARCHAR(32), 
	error_message VARCHAR(500), 
	run_id VARCHAR(32) NOT NULL, 
	num_claims INTEGER NOT NULL, 
	lease_until DOUBLE NOT NULL, 
	principal JSON NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	sealed_record BLOB NOT NULL, lacking VARCHAR(16), 
	PRIMARY KEY (store_id, file_id)
);
INSERT INTO "vector_store_files" VALUES('vs_1','file-1','acct',NULL,'in_progress',1700000000.0,1700003600.0,0,NULL,NULL,'',0,0.0,'{"key_id": "key_1", "account": "acct", "organization": "org-one", "tier": "standard", "requests_per_minute": 1000, "tokens_per_minute": 1000000, "operations": ["file_search"], "models": ["a/*"], "retention": "ephemeral", "expires_at": null, "is_admin": false, "regions": null}',X'DBBF8E50080EDA58FCB684AF09959E40A6ED6BAEA18340B365E25755F42754112596A989ED2B3C8920815192F819B6B24B07235CF47D81401028283D',X'6057DA22E7308563D7D5A7F1D8C03570045DAAF7F65047475CF5F8373EBFDF150BC9C347B0AB762E903725CE82B6C65CB602081D748611349F374C2413E1179D87AD3FFFA13FCF083E53687B8B2B79E6EC854D10B5B5B5EE6779E1D5F954270002BC72207D3B2FE5E7DF2BAEA8E3F571CFA047749335E261B86D23EF8C797638',NULL);
INSERT INTO "vector_store_files" VALUES('vs_1','file-2','acct',NULL,'in_progress',1700000000.0,1700003600.0,0,NULL,NULL,'',0,0.0,'{"key_id": "key_1", "account": "acct", "organization": "org-one", "tier": "standard", "requests_per_minute": 1000, "tokens_per_minute": 1000000, "operations": ["file_search"], "models": ["a/*"], "retention": "ephemeral", "expires_at": null, "is_admin": false, "regions": null}',X'CA272195521D88F1533987E21F1A3C6D0C73481627C4D0D168692D32E74D07AF8E781AB62EA54A3234EE9C5DD3997B62A62CBC4C821E415205782CAF',X'BE64090F854E1818CFF583EE883544DE928F0C0D1396B2E74EF1AC33FF133E5C9D65EBB61DD48EFF04B467CE537171565B891C231C4B5050D00814E0B82093EA9285D231DF2E5885FE9FF177E6A370F233523AE12128F1D64EE4635A5983A73BB486939B4A14A839AE11F322AF80B34AE0467CB4B5C1C659C73761A030B8ED03',NULL);
CREATE TABLE vector_stores (
	store_id VARCHAR(64) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	embedding_model VARCHAR(256) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	last_active_at DOUBLE NOT NULL, 
	expires_after_days INTEGER, 
	expires_at DOUBLE, 
	has_expired BOOLEAN NOT NULL, 
	is_deleted BOOLEAN NOT NULL, 
	revision BIGINT NOT NULL, 
	is_dirty BOOLEAN NOT NULL, 
	tidy_at DOUBLE, 
	wrapped_key BLOB NOT NULL, 
	sealed_record BLOB NOT NULL, 
	PRIMARY KEY (store_id)
);
INSERT INTO "vector_stores" VALUES('vs_1','acct','model',1700000000.0,1700000000.0,NULL,NULL,0,0,2,1,1700000000.0,X'5FC61DCC8845C058CA511F1C9950356FC21D913E8A13961ADB84A58A984F98420B31A1A2BC712AD54FD414CC0E787D3C858127AC265A5DE782E14D10',X'21AEA6FA43254563F79D14ECF4DA280C5313EBA19505CC79D29ECE7B433117A45694F836B2F31D05');
CREATE TABLE webhook_deliveries (
	event_id VARCHAR(64) NOT NULL, 
	endpoint_id VARCHAR(64) NOT NULL, 
	type VARCHAR(64) NOT NULL, 
	object_id VARCHAR(64) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	due_at DOUBLE NOT NULL, 
	num_tries INTEGER NOT NULL, 
	PRIMARY KEY (event_id, endpoint_id)
);
INSERT INTO "webhook_deliveries" VALUES('evt_8e3440db37354269d02e5bdc01ed3fd2','whe_2199aa9dcef0dd009619c361729cc586','batch.completed','batch_1',1700000000.0,1700000000.0,0);
CREATE TABLE webhook_endpoints (
	endpoint_id VARCHAR(64) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	event_types JSON NOT NULL, 
	created_at DOUBLE NOT NULL, 
	updated_at DOUBLE NOT NULL, 
	failing_since DOUBLE, 
	is_disabled BOOLEAN NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	sealed_record BLOB NOT NULL, 
	sealed_secret BLOB NOT NULL, 
	sealed_previous BLOB, 
	previous_until DOUBLE, 
	PRIMARY KEY (endpoint_id)
);
INSERT INTO "webhook_endpoints" VALUES('whe_2199aa9dcef0dd009619c361729cc586','acct','["batch.completed"]',1700000000.0,1700000000.0,NULL,0,X'068453BC20159F528D29DB64BD3B06BA2A92EBB358CC74A284752017D402C280A864DDE57D06AEEA370AE1062F5C672D63EDB9C0062A952449A5D8CB',X'426AA2C55B4248CF35764B83DD97525C2C081C3F171255A1A7502433EFDC0310A0DD8CF8A83F7F11B53CAE7ABC926253C1F5A1F65C9791E35475AE0A4143E39D8BE6B6591F8EEF732F5B64C70F5EA3B643C6A684C80E42DAC1FA34BD8E5AE5153EFD63BB',X'B37861E97D76CDD111C8D98AEAB50F5E9D14EA874EF7C202FD7FFFDC017DFB959393A55DC6589AA17E43B1823E54DAD9403B01308013C43A17E96FF4A80AEB6D8E18F7DA601CF7FB6373533A8084',NULL,NULL);
CREATE INDEX ix_api_keys_account ON api_keys (account, created_at);
CREATE INDEX ix_api_keys_revision ON api_keys (revision);
CREATE INDEX ix_request_log_key ON request_log (key_id, at);
CREATE INDEX ix_request_log_at ON request_log (at);
CREATE INDEX ix_usage_account ON usage (account, day);
CREATE INDEX ix_usage_day ON usage (day);
CREATE INDEX ix_limiter_charges_at ON limiter_charges (at);
CREATE INDEX ix_files_expires_at ON files (expires_at);
CREATE INDEX ix_files_object_key ON files (object_key);
CREATE INDEX ix_files_account ON files (account, created_at, file_id);
CREATE INDEX ix_batches_input_file_id ON batches (input_file_id);
CREATE INDEX ix_batches_status ON batches (status);
CREATE INDEX ix_batches_account ON batches (account, created_at, batch_id);
CREATE INDEX ix_batch_segments_batch_id ON batch_segments (batch_id);
CREATE INDEX ix_batch_segments_object_key ON batch_segments (object_key);
CREATE INDEX ix_responses_previous_id ON responses (previous_id);
CREATE INDEX ix_responses_expires_at ON responses (expires_at);
CREATE INDEX ix_response_items_response ON response_items (response_id);
CREATE INDEX ix_response_jobs_lease_until ON response_jobs (lease_until);
CREATE INDEX ix_conversations_expires_at ON conversations (expires_at);
CREATE INDEX ix_conversation_items_position ON conversation_items (conversation_id, position);
CREATE INDEX ix_containers_account ON containers (account, created_at, container_id);
CREATE INDEX ix_containers_expires_at ON containers (expires_at);
CREATE INDEX ix_vector_stores_account ON vector_stores (account, created_at, store_id);
CREATE INDEX ix_vector_stores_expires_at ON vector_stores (expires_at);
CREATE INDEX ix_vector_stores_tidy_at ON vector_stores (tidy_at);
CREATE INDEX ix_vector_store_files_order ON vector_store_files (store_id, created_at, file_id);
CREATE INDEX ix_vector_store_files_file ON vector_store_files (file_id);
CREATE INDEX ix_vector_store_files_work ON vector_store_files (status, lease_until);
CREATE INDEX ix_vector_store_files_batch_id ON vector_store_files (batch_id);
CREATE INDEX ix_vector_store_files_expires_at ON vector_store_files (expires_at);
CREATE INDEX ix_vector_store_batches_store_id ON vector_store_batches (store_id);
CREATE INDEX ix_uploads_account ON uploads (account, status);
CREATE INDEX ix_uploads_kept_until ON uploads (kept_until);
CREATE INDEX ix_upload_parts_upload_id ON upload_parts (upload_id);
CREATE INDEX ix_upload_parts_object_key ON upload_parts (object_key);
CREATE INDEX ix_object_copies_store_since ON object_copies (store, since);
CREATE INDEX ix_ingress_replicas_seen_at ON ingress_replicas (seen_at);
CREATE INDEX ix_region_limiter_charges_at ON region_limiter_charges (at);
CREATE INDEX ix_usage_minutes_account ON usage_minutes (account, start);
CREATE INDEX ix_usage_hours_account ON usage_hours (account, start);
CREATE INDEX ix_usage_days_account ON usage_days (account, start);
CREATE INDEX ix_audit_log_at ON audit_log (at, entry_id);
CREATE INDEX ix_request_log_account ON request_log (account, at);
CREATE INDEX ix_request_log_before ON request_log (record_id) WHERE operation IS NULL;
CREATE INDEX ix_console_sessions_expires_at ON console_sessions (expires_at);
CREATE INDEX ix_console_links_expires_at ON console_links (expires_at);
CREATE INDEX ix_responses_account ON responses (account, created_at, response_id);
CREATE INDEX ix_conversations_account ON conversations (account, created_at, conversation_id);
CREATE INDEX ix_webhook_endpoints_account ON webhook_endpoints (account, created_at);
CREATE INDEX ix_webhook_deliveries_endpoint_id ON webhook_deliveries (endpoint_id);
CREATE INDEX ix_webhook_deliveries_due_at ON webhook_deliveries (due_at);
CREATE INDEX ix_latency_minutes_account ON latency_minutes (account, start);
CREATE INDEX ix_latency_hours_account ON latency_hours (account, start);
CREATE INDEX ix_latency_days_account ON latency_days (account, start);
COMMIT;
