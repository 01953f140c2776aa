//! The websocket: the token in the first frame, JSON frames from then on, a new attempt after each loss.

use futures::channel::mpsc;
use futures::{SinkExt, StreamExt, select};
use gloo::net::websocket::{Message, State, WebSocketError, futures::WebSocket};
use leptos::prelude::*;
use planner::json::read_json;
use planner::wire::{self, ToHub, ToPage};

use super::{Connection, Hub};
use crate::browser;
use crate::state::start;

/// Requests that wait for the socket. A person clicks slower than that.
const QUEUE: usize = 64;
/// Seconds before the next attempt: the first, and the longest.
const BACKOFF_S: (u32, u32) = (1, 30);
/// The close code with which a hub refuses a token (RFC 6455: policy violation).
const REFUSED: u16 = 1008;

/// How one connection ended.
enum End {
    /// The hub greeted us and went away later.
    Lost,
    /// The hub was never there.
    Unreachable,
    /// The hub did not take the token.
    Refused,
}

/// Connects, and connects again whenever the connection is lost.
pub fn keep_open(hub: Hub) {
    leptos::task::spawn_local(async move {
        let mut wait = BACKOFF_S.0;
        while let (Some(token), Some(address)) = (start::token(), browser::socket_address("/ws")) {
            hub.connection.set(Connection::Connecting);
            match converse(hub, &address, token).await {
                End::Lost => wait = BACKOFF_S.0,
                End::Unreachable => {}
                End::Refused => {
                    start::forget_token();
                    let reason = hub.error.get_untracked().unwrap_or_else(|| {
                        "The hub did not take this page's token; open the address that `shardplan serve` printed last".to_owned()
                    });
                    hub.error.set(None);
                    hub.connection.set(Connection::Refused { reason });
                    return;
                }
            }
            hub.outgoing.set_value(None);
            hub.starting.set(false);
            if let Connection::Refused { .. } = hub.connection.get_untracked() {
                return;
            }
            for seconds in (1..=wait).rev() {
                hub.connection.set(Connection::Waiting { seconds });
                browser::rest(1000).await;
            }
            wait = (wait * 2).min(BACKOFF_S.1);
        }
        hub.connection.set(Connection::Offline);
    });
}

async fn converse(hub: Hub, address: &str, token: String) -> End {
    let Ok(socket) = WebSocket::open(address) else { return End::Unreachable };
    // Sending by what has failed to open is an error in the console. Waiting for the socket by its own futures is 2 KB of the page.
    while matches!(socket.state(), State::Connecting) {
        browser::rest(20).await;
    }
    if !matches!(socket.state(), State::Open) {
        return End::Unreachable;
    }
    let (mut sink, incoming) = socket.split();
    let mut incoming = incoming.fuse();
    let hello = ToHub::Hello { token, version: wire::VERSION };
    if sink.send(Message::Text(encode(&hello))).await.is_err() {
        return End::Unreachable;
    }
    let (sender, mut requests) = mpsc::channel::<ToHub>(QUEUE);
    hub.outgoing.set_value(Some(sender));
    let mut welcomed = false;
    loop {
        select! {
            frame = incoming.next() => match frame {
                Some(Ok(Message::Text(text))) => match read_json::<ToPage>(&text) {
                    Ok(message) => {
                        welcomed |= matches!(message, ToPage::Welcome { .. });
                        hub.receive(message);
                        if let Connection::Refused { .. } = hub.connection.get_untracked() {
                            return End::Lost;
                        }
                    }
                    Err(error) => {
                        hub.error.set(Some(format!("The hub sent a message that this page does not know ({error}); reload the page")));
                    }
                },
                // The hub speaks text; anything else is not for us.
                Some(Ok(Message::Bytes(_))) => {}
                Some(Err(WebSocketError::ConnectionClose(close))) if close.code == REFUSED && !welcomed => return End::Refused,
                Some(Err(_)) | None => return if welcomed { End::Lost } else { End::Unreachable },
            },
            request = requests.next() => match request {
                Some(request) => {
                    if sink.send(Message::Text(encode(&request))).await.is_err() {
                        return if welcomed { End::Lost } else { End::Unreachable };
                    }
                }
                None => return End::Lost,
            },
        }
    }
}

fn encode(message: &ToHub) -> String {
    // A message is plain data with string keys, which always has a JSON form.
    serde_json::to_string(message).unwrap_or_default()
}
