//! One page's connection: it opens with the token, then asks for what it shows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use planner::finding::one_line;
use planner::wire::{MAX_CLIENT_FRAME_BYTES, RunSummary, ToHub, ToPage, VERSION};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tracing::{debug, info, warn};

use super::door::Stranger;
use super::{Hub, MAX_PAGES, control, follow, guard};

/// How long a page may take to send its token.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// How long a page may take to accept a frame before it is given up.
const SEND_LIMIT: Duration = Duration::from_secs(60);
/// How often a quiet connection is tried.
const PING_EVERY: Duration = Duration::from_secs(20);
/// How often what is being prepared is looked at again.
const LOOK_AGAIN_EVERY: Duration = Duration::from_secs(1);
/// Frames that wait for a page.
const QUEUE_FRAMES: usize = 16;
/// Runs that one page may watch at once.
const MAX_WATCHES: usize = 16;
/// What is done for a page at once, its answer accepted; it is read no further until one of these is through.
const MAX_AT_WORK: usize = 8;

/// Serves one page until it goes. Before it has shown the token it takes the place of no page.
pub async fn session(socket: WebSocket, hub: Arc<Hub>, stranger: Arc<Stranger>) {
    let (mut sink, mut stream) = socket.split();
    let said = tokio::select! {
        said = hello(&mut stream, &hub) => said,
        () = stranger.must_go() => return,
    };
    if let Err(message) = said {
        // No more than that: whoever reaches the port could fill a disk otherwise.
        debug!("a page is refused: {message}");
        return tokio::select! {
            () = refuse(&mut sink, close_code::POLICY, message) => {}
            () = stranger.must_go() => {}
        };
    }
    stranger.leaves();
    let Ok(_page) = hub.pages.try_acquire() else {
        let message = format!("{MAX_PAGES} pages are connected, which is the most; close some");
        return refuse(&mut sink, close_code::AGAIN, message).await;
    };
    debug!("a page is connected");
    talk(sink, stream, hub.clone()).await;
    debug!("a page is gone");
}

/// Waits for the token.
async fn hello(stream: &mut SplitStream<WebSocket>, hub: &Hub) -> Result<(), String> {
    let first = async {
        loop {
            match stream.next().await {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => return other,
            }
        }
    };
    let first = tokio::time::timeout(HELLO_LIMIT, first).await;
    let first = first.map_err(|_| format!("No token came within {} s", HELLO_LIMIT.as_secs()))?;
    let text = match first {
        Some(Ok(Message::Text(text))) => text,
        Some(Ok(_)) | None => {
            return Err("The first frame must be a hello with the token, as text".to_owned());
        }
        Some(Err(error)) => return Err(unreadable(&error)),
    };
    match serde_json::from_str(&text) {
        Ok(ToHub::Hello { token, .. }) if !guard::token_is_right(&token, &hub.token) => Err(
            "The token is not this hub's; open the URL that `shardplan serve` printed, it is new with every start".to_owned(),
        ),
        Ok(ToHub::Hello { version, .. }) if version != VERSION => Err(format!(
            "The page speaks version {version} and this hub version {VERSION}; load the page from the hub again"
        )),
        Ok(ToHub::Hello { .. }) => Ok(()),
        Ok(_) | Err(_) => Err("The first frame must be a hello with the token".to_owned()),
    }
}

async fn refuse(sink: &mut SplitSink<WebSocket, Message>, code: u16, message: String) {
    let limit = Duration::from_secs(5);
    // A close frame has room for 123 bytes of reason, so that stands in a frame of its own.
    let closing = async {
        let _ = sink.send(encode(&ToPage::Error { message })).await;
        let _ = sink.send(Message::Close(Some(CloseFrame { code, reason: "refused".into() }))).await;
    };
    let _ = tokio::time::timeout(limit, closing).await;
}

fn unreadable(error: &axum::Error) -> String {
    format!("A frame can't be read ({error}); frames of up to {MAX_CLIENT_FRAME_BYTES} bytes are")
}

fn encode(message: &ToPage) -> Message {
    Message::Text(serde_json::to_string(message).unwrap_or_default().into())
}

async fn talk(sink: SplitSink<WebSocket, Message>, mut stream: SplitStream<WebSocket>, hub: Arc<Hub>) {
    let (queue, frames) = mpsc::channel(QUEUE_FRAMES);
    // A page that asks again while a list waits for it is read no further.
    let (lists, asked) = mpsc::channel(1);
    let mut writer = tokio::spawn(write(sink, frames, asked, hub.runs.clone()));
    let mut page = Page {
        hub: hub.clone(),
        queue,
        lists,
        tasks: JoinSet::new(),
        at_work: Arc::new(Semaphore::new(MAX_AT_WORK)),
        watches: HashMap::new(),
    };
    let (mut problems, mut is_preparing) = hub.problems.get().await;
    // Asking the driver may take a moment.
    let machine = tokio::task::spawn_blocking(crate::probe::machine).await.unwrap_or_default();
    let (host, known) = (hub.host.clone(), problems.clone());
    page.send(ToPage::Welcome { version: VERSION, host, problems: known, machine }).await;
    let mut look_again = tokio::time::interval(LOOK_AGAIN_EVERY);
    look_again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            message = stream.next() => message,
            _ = &mut writer => break,
            _ = look_again.tick(), if is_preparing => {
                let (now, goes_on) = hub.problems.get().await;
                is_preparing = goes_on;
                if now != problems {
                    problems.clone_from(&now);
                    page.send(ToPage::Problems { problems: now }).await;
                }
                continue;
            }
        };
        match message {
            Some(Ok(Message::Text(text))) => match serde_json::from_str(&text) {
                Ok(request) => page.answer(request).await,
                Err(error) => {
                    page.send(ToPage::Error { message: format!("This request is not understood: {error}") })
                        .await
                }
            },
            Some(Ok(Message::Binary(_))) => {
                page.send(ToPage::Error { message: "Requests are text frames".to_owned() }).await;
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Err(error)) => {
                page.send(ToPage::Error { message: unreadable(&error) }).await;
                break;
            }
            Some(Ok(Message::Close(_))) | None => break,
        }
    }
    // Ends followers, so that the queue closes and the writer sends what is left.
    drop(page);
    // One that could not write any more has ended before, and may have been heard of.
    if !writer.is_finished() && tokio::time::timeout(Duration::from_secs(5), &mut writer).await.is_err() {
        writer.abort();
    }
}

/// Sends what is queued, the list of runs once it is asked for, now and when it changes, and tries a quiet connection from time to
/// time. A list is made when it can be sent, so that none waits for a slow page, and changes meanwhile become one.
async fn write(
    mut sink: SplitSink<WebSocket, Message>,
    mut frames: mpsc::Receiver<ToPage>,
    mut asked: mpsc::Receiver<()>,
    mut runs: watch::Receiver<Arc<Vec<RunSummary>>>,
) {
    let mut ping = tokio::time::interval(PING_EVERY);
    ping.reset();
    let mut lists = false;
    loop {
        let message = tokio::select! {
            frame = frames.recv() => match frame {
                Some(frame) => encode(&frame),
                None => break,
            },
            Some(()) = asked.recv() => {
                lists = true;
                list(&mut runs)
            }
            Ok(()) = runs.changed(), if lists => list(&mut runs),
            _ = ping.tick() => Message::Ping(Default::default()),
        };
        if !matches!(tokio::time::timeout(SEND_LIMIT, sink.send(message)).await, Ok(Ok(()))) {
            return;
        }
    }
    let _ = tokio::time::timeout(Duration::from_secs(2), sink.close()).await;
}

fn list(runs: &mut watch::Receiver<Arc<Vec<RunSummary>>>) -> Message {
    let runs = runs.borrow_and_update().clone();
    encode(&ToPage::Runs { runs: runs.as_ref().clone() })
}

/// A page that has said hello.
struct Page {
    hub: Arc<Hub>,
    queue: mpsc::Sender<ToPage>,
    /// Asks for the list of runs.
    lists: mpsc::Sender<()>,
    /// Everything that is done for it; ends with it.
    tasks: JoinSet<()>,
    /// Permits for what it asks to be done.
    at_work: Arc<Semaphore>,
    watches: HashMap<String, AbortHandle>,
}

/// Who has it may do something for a page.
type AtWork = Option<OwnedSemaphorePermit>;

impl Page {
    async fn send(&self, message: ToPage) {
        let _ = self.queue.send(message).await;
    }

    async fn error(&self, message: String) {
        self.send(ToPage::Error { message }).await;
    }

    /// Waits until no more is done for the page than may be at once.
    async fn permit(&self) -> AtWork {
        self.at_work.clone().acquire_owned().await.ok()
    }

    /// Does what may wait for a disk, and answers where that could not be met.
    async fn carry_out(
        &mut self,
        (asked, run): (&'static str, String),
        does: impl FnOnce(&Hub, &str) -> Result<(), String> + Send + 'static,
    ) {
        let (hub, queue, permit) = (self.hub.clone(), self.queue.clone(), self.permit().await);
        self.tasks.spawn(async move {
            let (name, work) = (run.clone(), move || does(&hub, &run));
            let Ok(answer) = tokio::task::spawn_blocking(work).await else { return };
            if let Some(refused) = done(asked, &name, answer) {
                let _ = queue.send(refused).await;
            }
            drop(permit);
        });
    }

    async fn answer(&mut self, request: ToHub) {
        while self.tasks.try_join_next().is_some() {}
        let (hub, queue) = (self.hub.clone(), self.queue.clone());
        match request {
            ToHub::Hello { .. } => self.error("This connection is open already".to_owned()).await,
            ToHub::ListRuns => {
                let _ = self.lists.send(()).await;
            }
            ToHub::Watch { run } => self.watch(run).await,
            ToHub::Unwatch { run } => {
                if let Some(watch) = self.watches.remove(&run) {
                    watch.abort();
                }
            }
            ToHub::Start { plan, going_on } => {
                let permit = self.permit().await;
                // A start that has begun is not given up because the page goes, so it is nobody's task.
                tokio::spawn(async move {
                    let _ = queue.send(started("start", control::start(hub, *plan, going_on).await)).await;
                    drop(permit);
                });
            }
            ToHub::Resume { run } => {
                let permit = self.permit().await;
                tokio::spawn(async move {
                    let _ = queue.send(started("go on with", control::resume(hub, run).await)).await;
                    drop(permit);
                });
            }
            ToHub::MarkDead { run, rank } => {
                let does = move |hub: &Hub, run: &str| control::mark_dead(hub, run, rank);
                self.carry_out(("mark a rank dead of", run), does).await;
            }
            ToHub::ReturnToWhole { run } => {
                self.carry_out(("return to the whole plan of", run), control::return_to_whole).await;
            }
            ToHub::Stop { run } => {
                let permit = self.permit().await;
                tokio::spawn(async move {
                    if let Some(refused) = done("stop", &run, control::stop(hub, run.clone()).await) {
                        let _ = queue.send(refused).await;
                    }
                    drop(permit);
                });
            }
        }
    }

    async fn watch(&mut self, run: String) {
        let folder = match control::folder_of(&self.hub, &run) {
            Ok(folder) => folder,
            Err(message) => return self.error(message).await,
        };
        if let Some(refusal) = folder.refusal() {
            return self.error(format!("Run {run} is not shown: {refusal}")).await;
        }
        if let Some(watch) = self.watches.remove(&run) {
            watch.abort();
        }
        if self.watches.len() >= MAX_WATCHES {
            return self
                .error(format!("This page watches {MAX_WATCHES} runs, which is the most; unwatch one"))
                .await;
        }
        let task = self.tasks.spawn(follow::follow(folder, run.clone(), self.queue.clone()));
        self.watches.insert(run, task);
    }
}

/// The answer to a page that asked to `asked` a run, which is told, too.
fn started(asked: &str, answer: Result<String, String>) -> ToPage {
    match answer {
        Ok(run) => {
            info!("a page asked to {asked} run {run}: started");
            ToPage::Started { run }
        }
        Err(message) => refused(asked, message),
    }
}

/// The answer to a page that asked to `asked` a run where that could not be met; it is told in any case.
fn done(asked: &str, run: &str, answer: Result<(), String>) -> Option<ToPage> {
    match answer {
        Ok(()) => {
            info!("a page asked to {asked} run {run}: done");
            None
        }
        Err(message) => Some(refused(asked, message)),
    }
}

fn refused(asked: &str, message: String) -> ToPage {
    // It may name what the page has sent.
    warn!("a page asked to {asked} a run: {}", one_line(&message));
    ToPage::Error { message }
}
