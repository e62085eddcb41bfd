"""The paths of the console. `asgi` adds them to those of the API if the service has a console."""

from starlette.routing import Route

from deployments.operations import Operation
from serve_app.console.pages import (
    batches,
    chats,
    files,
    home,
    keys,
    models,
    overview,
    requests,
    responses,
    sign_in,
    stores,
    usage,
    webhooks,
)
from serve_app.console.pages.operator import accounts, audit, cluster
from serve_app.console.pages.operator import batches as all_batches
from serve_app.console.pages.operator import keys as all_keys
from serve_app.console.rendering import ASSETS_PATH, show_asset
from serve_app.console.visit import no_such_page, page

_BATCH = "/console/batches/{batch_id}"
_FILE = "/console/files/{file_id}"
_KEY = "/console/keys/{key_id}"
_STORE = "/console/vector-stores/{vector_store_id}"
_RESPONSE = "/console/responses/{response_id}"
_WEBHOOK = "/console/webhooks/{endpoint_id}"
_CHAT = "/console/chats/{completion_id}"
_CONVERSATION = "/console/conversations/{conversation_id}"

UPLOADS = "/console/upload/"
"""The prefix of forms with files."""
PLAYGROUND = "/console/playground/"
"""The prefix of requests to models."""

_STORE_UPLOAD = UPLOADS + "vector-stores/{vector_store_id}"
_POST = ["POST"]

ASSETS = [Route(ASSETS_PATH, show_asset), Route("/", home.show_home), Route("/favicon.ico", home.show_icon)]
"""Served without a console, too."""

ROUTES = [
    Route("/console/sign-in", sign_in.show_sign_in),
    Route("/console/sign-in", sign_in.sign_in_with_key, methods=_POST),
    Route("/console/sign-in/link", sign_in.sign_in_with_link, methods=_POST),
    Route("/console/sign-out", page(sign_in.sign_out), methods=_POST),
    Route("/console/theme", page(sign_in.choose_theme), methods=_POST),
    Route("/console", page(overview.show_overview)),
    Route("/console/usage", page(usage.show_usage, reads_usage=True)),
    Route("/console/requests", page(requests.list_requests, reads_usage=True)),
    Route("/console/requests.csv", page(requests.export_requests, reads_usage=True)),
    Route("/console/requests/{request_id}", page(requests.show_request, reads_usage=True)),
    Route("/console/models", page(models.show_models)),
    Route("/console/keys", page(keys.show_keys)),
    Route("/console/keys", page(keys.create_key), methods=_POST),
    Route(_KEY, page(keys.show_key)),
    Route(_KEY, page(keys.change_key), methods=_POST),
    Route(_KEY + "/rotate", page(keys.rotate_key), methods=_POST),
    Route(_KEY + "/revoke", page(keys.revoke_key), methods=_POST),
    Route("/console/files", page(files.list_files, operation=Operation.FILES)),
    Route(UPLOADS + "file", page(files.upload_file, operation=Operation.FILES), methods=_POST),
    Route(_FILE + "/content", page(files.download_file, operation=Operation.FILES)),
    Route(_FILE + "/delete", page(files.delete_file, operation=Operation.FILES), methods=_POST),
    Route("/console/batches", page(batches.list_batches, operation=Operation.BATCHES)),
    Route("/console/batches/new", page(batches.show_upload, operation=Operation.BATCHES)),
    Route(UPLOADS + "batch", page(batches.upload_input, operation=Operation.BATCHES), methods=_POST),
    Route(UPLOADS + "batch", page(batches.return_to_upload, operation=Operation.BATCHES)),
    Route("/console/batches/start", page(batches.start_batch, operation=Operation.BATCHES), methods=_POST),
    Route(_BATCH, page(batches.show_batch, operation=Operation.BATCHES)),
    Route(_BATCH + "/cancel", page(batches.cancel_batch, operation=Operation.BATCHES), methods=_POST),
    Route("/console/vector-stores", page(stores.list_stores, operation=Operation.FILE_SEARCH)),
    Route("/console/vector-stores", page(stores.create_store, operation=Operation.FILE_SEARCH), methods=_POST),
    Route(_STORE, page(stores.show_store, operation=Operation.FILE_SEARCH)),
    Route(_STORE + "/add", page(stores.add_file, operation=Operation.FILE_SEARCH), methods=_POST),
    Route(_STORE + "/remove", page(stores.remove_file, operation=Operation.FILE_SEARCH), methods=_POST),
    Route(_STORE_UPLOAD, page(stores.upload_file, operation=Operation.FILE_SEARCH), methods=_POST),
    Route(_STORE + "/search", page(stores.search_store, operation=Operation.FILE_SEARCH), methods=_POST),
    Route(_STORE + "/delete", page(stores.delete_store, operation=Operation.FILE_SEARCH), methods=_POST),
    Route("/console/responses", page(responses.list_responses, operation=Operation.RESPONSES)),
    Route(_RESPONSE, page(responses.show_response, operation=Operation.RESPONSES)),
    Route(_RESPONSE + "/delete", page(responses.delete_response, operation=Operation.RESPONSES), methods=_POST),
    Route("/console/chats", page(chats.list_chats, operation=Operation.CHAT)),
    Route(_CHAT, page(chats.show_chat, operation=Operation.CHAT)),
    Route(_CHAT + "/delete", page(chats.delete_chat, operation=Operation.CHAT), methods=_POST),
    Route("/console/conversations", page(responses.list_conversations, operation=Operation.RESPONSES)),
    Route(_CONVERSATION, page(responses.show_conversation, operation=Operation.RESPONSES)),
    Route(_CONVERSATION + "/delete", page(responses.delete_conversation, operation=Operation.RESPONSES), methods=_POST),
    Route("/console/webhooks", page(webhooks.list_endpoints, operation=Operation.WEBHOOKS)),
    Route("/console/webhooks", page(webhooks.create_endpoint, operation=Operation.WEBHOOKS), methods=_POST),
    Route(_WEBHOOK + "/enable", page(webhooks.enable_endpoint, operation=Operation.WEBHOOKS), methods=_POST),
    Route(_WEBHOOK + "/test", page(webhooks.test_endpoint, operation=Operation.WEBHOOKS), methods=_POST),
    Route(_WEBHOOK + "/rotate", page(webhooks.rotate_secret, operation=Operation.WEBHOOKS), methods=_POST),
    Route(_WEBHOOK + "/delete", page(webhooks.delete_endpoint, operation=Operation.WEBHOOKS), methods=_POST),
    Route("/console/playground", page(models.show_playground)),
    Route(PLAYGROUND + "chat", page(models.answer_chat, operation=Operation.CHAT, is_for_scripts=True), methods=_POST),
    Route(
        PLAYGROUND + "responses",
        page(models.answer_response, operation=Operation.RESPONSES, is_for_scripts=True),
        methods=_POST,
    ),
    *(
        Route("/console/operator" + path, page(show, is_for_operators=True))
        for path, show in (
            ("", cluster.show_home),
            ("/accounts", accounts.list_accounts),
            ("/accounts/{account}", accounts.show_account),
            ("/keys", all_keys.list_keys),
            ("/keys/new", all_keys.show_new_key),
            ("/keys/{key_id}", all_keys.show_key),
            ("/cluster", cluster.show_cluster),
            ("/batches", all_batches.list_batches),
            ("/batches/{batch_id}", all_batches.show_batch),
            ("/audit", audit.list_entries),
        )
    ),
    *(
        Route("/console/operator" + path, page(change, is_for_operators=True), methods=_POST)
        for path, change in (
            ("/keys", all_keys.create_key),
            ("/keys/{key_id}", all_keys.edit_key),
            ("/keys/{key_id}/rotate", all_keys.rotate_key),
            ("/keys/{key_id}/revoke", all_keys.revoke_key),
            ("/batches/{batch_id}/pause", all_batches.pause_batch),
            ("/batches/{batch_id}/resume", all_batches.resume_batch),
            ("/batches/{batch_id}/cancel", all_batches.cancel_batch),
        )
    ),
    Route("/console/{path:path}", page(no_such_page)),
]

COUNTED_AS = {
    PLAYGROUND + "chat": "/v1/chat/completions",
    PLAYGROUND + "responses": "/v1/responses",
    _STORE + "/search": "/v1/vector_stores/{vector_store_id}/search",
}
"""The paths whose requests count in usage, each with the path of the API under which it counts."""
