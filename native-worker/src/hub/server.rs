//! The routes, and what holds for all of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use planner::wire::MAX_CLIENT_FRAME_BYTES;
use tokio::net::TcpListener;

use super::{Hub, guard, metrics, socket};

/// Pages that may be connected at once.
const MAX_CONNECTIONS: usize = 64;
/// Bytes that may wait in a connection's write buffer.
const WRITE_BUFFER_BYTES: usize = 128 * 1024;
const MAX_WRITE_BUFFER_BYTES: usize = 16 * 1024 * 1024;

/// Serves until the process ends.
///
/// # Errors
/// When connections can't be accepted any more.
pub async fn serve(listeners: Vec<TcpListener>, hub: Arc<Hub>) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/metrics", get(get_metrics))
        .route("/ws", get(connect))
        .fallback(get(get_file))
        .layer(middleware::from_fn_with_state(hub.clone(), check_host))
        .with_state(hub);
    let served = listeners.into_iter().map(|listener| axum::serve(listener, router.clone()).into_future());
    futures::future::try_join_all(served).await.map(|_| ())
}

/// Refuses requests for another host, and sets what every answer should say.
async fn check_host(State(hub): State<Arc<Hub>>, request: Request, next: Next) -> Response {
    let host = host_of(request.headers());
    if !guard::host_is_ours(host, hub.settings.bind, &hub.host) {
        let shown: String = host.chars().filter(char::is_ascii_graphic).take(80).collect();
        return (
            StatusCode::MISDIRECTED_REQUEST,
            format!("This hub does not answer for the host {shown:?}; open the URL that it printed\n"),
        )
            .into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn get_metrics(State(hub): State<Arc<Hub>>) -> Response {
    if !hub.settings.metrics {
        return StatusCode::NOT_FOUND.into_response();
    }
    let text = tokio::task::spawn_blocking(move || metrics::render(&hub)).await;
    match text {
        Ok(text) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn get_file(State(hub): State<Arc<Hub>>, uri: Uri, headers: HeaderMap) -> Response {
    // Compressing a large file for the first time takes a while.
    let served = tokio::task::spawn_blocking(move || hub.assets.serve(uri.path(), &headers)).await;
    served.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

async fn connect(State(hub): State<Arc<Hub>>, headers: HeaderMap, upgrade: WebSocketUpgrade) -> Response {
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or("?"));
    if !guard::origin_may_connect(origin, host_of(&headers), hub.port, &hub.settings.allow_origins) {
        let shown: String = origin.unwrap_or("").chars().take(200).collect();
        return (
            StatusCode::FORBIDDEN,
            format!("A page from {shown:?} may not connect; allow it with `shardplan serve --allow-origin ORIGIN`\n"),
        )
            .into_response();
    }
    if hub.connections.load(Ordering::Relaxed) >= MAX_CONNECTIONS {
        let message = format!("{MAX_CONNECTIONS} pages are connected, which is the most; close some\n");
        return (StatusCode::SERVICE_UNAVAILABLE, message).into_response();
    }
    upgrade
        .max_frame_size(MAX_CLIENT_FRAME_BYTES)
        .max_message_size(MAX_CLIENT_FRAME_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(MAX_WRITE_BUFFER_BYTES)
        .on_upgrade(move |socket| socket::session(socket, hub))
}

fn host_of(headers: &HeaderMap) -> &str {
    headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("")
}
