"""The environment variables that Manta reads: for the reference of the command line."""

VARIABLES = {
    "MANTA_STATE_DIR": "The directory of the database, the secrets, logs and files. By default `.manta`.",
    "MANTA_DATABASE_URL": "The database on which `manta keys` and other commands work, unless an option names it.",
    "MANTA_PEPPER": "The pepper of the service, for `manta front` without a configuration file.",
    "MANTA_URL": "The address of the service for `manta batch`; `OPENAI_BASE_URL` is read too.",
    "MANTA_API_KEY": "The API key for `manta batch`; `OPENAI_API_KEY` is read too.",
    "MANTA_FRONT_STATS_HOST": "The address of the load balancer's metrics and statistics. By default `127.0.0.1`.",
    "MANTA_FRONT_STATS_PORT": "The first port of these metrics; the second is the next one. By default 8404.",
    "RAY_TMPDIR": "Where Ray's files are with `manta serve`. By default in the state directory.",
    "HF_TOKEN": "The token with which gated and private models are downloaded from the hub.",
    "HF_HOME": "Where downloaded models are kept. By default `~/.cache/huggingface`.",
    "HF_HUB_OFFLINE": "With `1`, nothing is downloaded from the hub.",
}
"""Their meanings. A configuration may name more, as `{env: NAME}`."""
