//! The routes, and what holds for all of them.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use planner::wire::MAX_CLIENT_FRAME_BYTES;
use tokio::net::TcpListener;

use super::door::{Door, Stranger};
use super::{Hub, guard, metrics, socket};

/// How long a connection may take to say what it asks for, whether for the first time or again.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// Bytes that may wait in a connection's write buffer.
const WRITE_BUFFER_BYTES: usize = 128 * 1024;
const MAX_WRITE_BUFFER_BYTES: usize = 16 * 1024 * 1024;

/// Serves until the process ends.
pub async fn serve(listeners: Vec<TcpListener>, hub: Arc<Hub>) {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/metrics", get(get_metrics))
        .route("/ws", get(connect))
        .fallback(get(get_file))
        .layer(middleware::from_fn_with_state(hub.clone(), check_host))
        .with_state(hub);
    let door = Arc::new(Door::default());
    let served = listeners.into_iter().map(|listener| accept(listener, router.clone(), door.clone()));
    futures::future::join_all(served).await;
}

/// Serves who connects, each until it ends or has to make room.
async fn accept(mut listener: TcpListener, router: Router, door: Arc<Door>) {
    loop {
        let (stream, _) = Listener::accept(&mut listener).await;
        let stranger = door.enter();
        let (routes, known) = (TowerToHyperService::new(router.clone()), stranger.clone());
        let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(known.clone());
            routes.call(request)
        });
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_LIMIT)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            tokio::select! {
                // How a connection ends is its client's affair.
                _ = connection => {}
                () = stranger.must_go() => {}
            }
        });
    }
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

async fn connect(
    State(hub): State<Arc<Hub>>,
    Extension(stranger): Extension<Arc<Stranger>>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or("?"));
    if !guard::origin_may_connect(origin, host_of(&headers), hub.port, &hub.settings.allow_origins) {
        let shown: String = origin.unwrap_or("").chars().take(200).collect();
        return (
            StatusCode::FORBIDDEN,
            format!("A page from {shown:?} may not connect; allow it with `shardplan serve --allow-origin ORIGIN`\n"),
        )
            .into_response();
    }
    upgrade
        .max_frame_size(MAX_CLIENT_FRAME_BYTES)
        .max_message_size(MAX_CLIENT_FRAME_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(MAX_WRITE_BUFFER_BYTES)
        .on_upgrade(move |socket| socket::session(socket, hub, stranger))
}

fn host_of(headers: &HeaderMap) -> &str {
    headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("")
}
