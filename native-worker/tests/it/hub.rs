//! The hub's doors: who is let in, and what is served.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use planner::wire::{ToHub, ToPage};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::support::{Ended, PATIENCE, Workshop, wait_for};

/// A hub that serves a workshop's runs.
pub struct Hub {
    process: Ended,
    pub port: u16,
    pub token: String,
}

pub type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

impl Hub {
    pub fn start(shop: &Workshop) -> Self {
        Self::start_with(shop, &[], "finish completed")
    }

    pub fn start_with(shop: &Workshop, arguments: &[&str], fake: &str) -> Self {
        let mut command = shop.shardplan();
        command.args(["serve", "--json"]).args(arguments).env("FAKE", fake);
        let mut process: Child = command.spawn().expect("started");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let json: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        let url = std::fs::read_to_string(json["url_file"].as_str().expect("a file")).expect("an address");
        let rest = url.trim().strip_prefix("http://127.0.0.1:").unwrap_or_else(|| panic!("{url}"));
        let (port, token) = rest.split_once("/#token=").unwrap_or_else(|| panic!("{url}"));
        assert_eq!(json["url"], format!("http://127.0.0.1:{port}/"));
        assert!(token.len() >= 43 && !line.contains(token), "256 bits, not told: {token}");
        Hub { process: Ended(process), port: port.parse().expect("a port"), token: token.to_owned() }
    }

    pub fn kill(mut self) {
        self.process.0.kill().expect("killed");
        self.process.0.wait().expect("ended");
    }

    /// The answer to a plain request.
    fn get(&self, path: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        write!(stream, "GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n").expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("read");
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn request(&self, origin: Option<&str>) -> tungstenite::handshake::client::Request {
        let mut request =
            format!("ws://127.0.0.1:{}/ws", self.port).into_client_request().expect("a request");
        if let Some(origin) = origin {
            request.headers_mut().insert("origin", origin.parse().expect("a header"));
        }
        request
    }

    /// A socket that has not said hello.
    async fn connect(&self) -> Socket {
        let own = format!("http://127.0.0.1:{}", self.port);
        tokio_tungstenite::connect_async(self.request(Some(&own))).await.expect("connected").0
    }

    /// A socket that has been welcomed.
    pub async fn open(&self) -> Socket {
        let mut socket = self.connect().await;
        send(&mut socket, &ToHub::Hello { token: self.token.clone(), version: 1 }).await;
        match next(&mut socket).await {
            Some(ToPage::Welcome { version: 1, .. }) => socket,
            other => panic!("{other:?}"),
        }
    }
}

pub async fn send(socket: &mut Socket, message: &ToHub) {
    let text = serde_json::to_string(message).expect("JSON");
    socket.send(Message::text(text)).await.expect("sent");
}

/// The next message; none when the hub has closed the socket.
pub async fn next(socket: &mut Socket) -> Option<ToPage> {
    loop {
        let message = tokio::time::timeout(PATIENCE, socket.next()).await.expect("in time");
        match message {
            Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).expect("a message")),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
            Some(Ok(other)) => panic!("{other:?}"),
        }
    }
}

/// An error that names `expected`, then the end.
async fn refused(mut socket: Socket, expected: &str) {
    match next(&mut socket).await {
        Some(ToPage::Error { message }) => assert!(message.contains(expected), "{expected:?} in {message}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(next(&mut socket).await, None, "the socket is closed");
}

#[test]
fn the_page_and_its_headers() {
    let shop = Workshop::new();
    let hub = Hub::start(&shop);
    let host = format!("Host: localhost:{}\r\n", hub.port);
    let page = hub.get("/", &host);
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    let page = page.to_ascii_lowercase();
    for header in [
        "content-type: text/html; charset=utf-8",
        "cache-control: no-store",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "content-security-policy: default-src 'self'; script-src 'self' 'wasm-unsafe-eval'",
    ] {
        assert!(page.contains(header), "{header:?} in {page}");
    }
    assert!(hub.get("/healthz", &host).ends_with("ok\n"));
    assert!(hub.get("/no-such-file", &host).starts_with("HTTP/1.1 404"));
    assert!(hub.get("/../Cargo.toml", &host).starts_with("HTTP/1.1 404"));
    let metrics = hub.get("/metrics", &host);
    assert!(metrics.contains("shardplan_runs{state=\"running\"} 0"), "{metrics}");
    assert!(!metrics.contains(&hub.token));
    let packed = hub.get("/", &format!("{host}Accept-Encoding: br, gzip\r\n")).to_ascii_lowercase();
    assert!(packed.contains("content-encoding: gzip"), "{packed}");
}

#[test]
fn metrics_are_not_served_where_they_are_not_wanted() {
    let shop = Workshop::new();
    let hub = Hub::start_with(&shop, &["--no-metrics"], "finish completed");
    let host = format!("Host: 127.0.0.1:{}\r\n", hub.port);
    assert!(hub.get("/metrics", &host).starts_with("HTTP/1.1 404"));
    assert!(hub.get("/healthz", &host).ends_with("ok\n"));
}

/// Whether this machine has IPv6, without which there is no other loopback to stand at.
fn has_ipv6() -> bool {
    std::net::TcpListener::bind("[::1]:0").is_ok()
}

#[test]
fn a_page_of_a_folder_is_served_instead() {
    let shop = Workshop::new();
    std::fs::create_dir_all(shop.path("page")).expect("made");
    std::fs::write(shop.path("page/index.html"), "<p>another page").expect("written");
    let hub = Hub::start_with(&shop, &["--page", "page"], "finish completed");
    assert!(hub.get("/", &format!("Host: localhost:{}\r\n", hub.port)).ends_with("<p>another page"));
}

#[tokio::test]
async fn a_page_hears_what_is_still_being_made_and_when_it_is_there() {
    let shop = Workshop::new();
    let file = shop.path("preparing");
    let at = |doing: &str| {
        let fresh = shop.path("fresh");
        std::fs::write(&fresh, format!("{}\n{doing}", std::process::id())).expect("written");
        std::fs::rename(fresh, &file).expect("renamed");
    };
    at("installing torch");
    let hub = Hub::start_with(&shop, &["--preparing", "preparing"], "finish completed");
    let mut socket = hub.connect().await;
    send(&mut socket, &ToHub::Hello { token: hub.token.clone(), version: 1 }).await;
    let mut said = Vec::new();
    while said.len() < 3 {
        match next(&mut socket).await {
            Some(ToPage::Welcome { problems, .. } | ToPage::Problems { problems }) => said.push(problems),
            other => panic!("{other:?}"),
        }
        match said.len() {
            1 => at("compiling shardplan-rank"),
            2 => std::fs::remove_file(&file).expect("removed"),
            _ => {}
        }
    }
    assert!(said[0].len() == 1 && said[0][0].contains("being made: installing torch."), "{said:?}");
    assert!(said[1].len() == 1 && said[1][0].contains("compiling shardplan-rank"), "{said:?}");
    assert!(said[2].is_empty(), "{said:?}");
}

#[test]
fn both_loopbacks_are_the_hubs() {
    let shop = Workshop::new();
    let hub = Hub::start(&shop);
    for address in ["127.0.0.1", "::1"].into_iter().take(if has_ipv6() { 2 } else { 1 }) {
        let mut stream = TcpStream::connect((address, hub.port)).expect("connected");
        stream.write_all(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        assert!(answer.ends_with("ok\n"), "{address}: {answer}");
        let taken = std::net::TcpListener::bind((address, hub.port)).expect_err("taken");
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    }
}

#[test]
fn a_port_that_another_has_on_either_loopback_is_refused() {
    let shop = Workshop::new();
    for address in ["127.0.0.1", "::1"].into_iter().take(if has_ipv6() { 2 } else { 1 }) {
        let squatter = std::net::TcpListener::bind((address, 0)).expect("a port");
        let port = squatter.local_addr().expect("an address").port();
        let answer = shop.ask(&["serve", "--port", &port.to_string()]);
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(3), ""), "{answer:?}");
        let expected = format!("port {port} of {address} is already in use");
        assert!(answer.stderr.contains(&expected) && answer.stderr.contains("--port"), "{answer:?}");
    }
}

/// Runs `shardplan serve` on a terminal of its own, until it has said its address, and gives what it printed.
fn on_a_terminal(shop: &Workshop, job: Option<&str>) -> String {
    // The terminal's other end is a file that grows.
    let typescript = shop.path(&format!("typescript-{}", job.unwrap_or("none")));
    let mut command = shop.shardplan();
    // Whoever runs the tests may ignore the hang-up of the terminal, by which this ends.
    let serve = format!("exec env --default-signal=HUP {} serve", env!("CARGO_BIN_EXE_shardplan"));
    let mut script = std::process::Command::new("script");
    script.args(["-qfec", &serve]).arg(&typescript).current_dir(shop.path("."));
    script.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    script
        .envs(command.env_remove("SLURM_JOB_ID").get_envs().filter_map(|(name, value)| Some((name, value?))));
    script.env_remove("SLURM_JOB_ID").envs(job.map(|job| ("SLURM_JOB_ID", job)));
    let _process = Ended(script.spawn().expect("script is there"));
    wait_for("an address", || {
        let printed = std::fs::read_to_string(&typescript).ok()?;
        printed.lines().find(|line| line.contains("http://")).map(str::to_owned)
    })
}

#[test]
fn the_token_is_printed_on_a_terminal_alone() {
    let shop = Workshop::new();
    let printed = on_a_terminal(&shop, None);
    assert!(printed.contains("/#token="), "{printed}");
    let printed = on_a_terminal(&shop, Some("42"));
    assert!(
        !printed.contains("token=") && printed.contains(".url"),
        "a job's output is read by many: {printed}"
    );
}

#[test]
fn where_others_read_the_token_lies_in_a_file_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let shop = Workshop::new();
    let mut command = shop.shardplan();
    let mut process = Ended(command.arg("serve").spawn().expect("started"));
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let (url, rest) = line.split_once(" (open the address in ").unwrap_or_else(|| panic!("{line}"));
    let (path, _) = rest.split_once(": it has the token").unwrap_or_else(|| panic!("{line}"));
    let address = std::fs::read_to_string(path).expect("an address");
    let token =
        address.trim().strip_prefix(url).and_then(|rest| rest.strip_prefix("#token=")).expect("a token");
    assert!(!line.contains(token) && token.len() == 64);
    assert_eq!(std::fs::metadata(path).expect("there").permissions().mode() & 0o777, 0o600);
    // Nor is it in what others can see of the process.
    let argv = std::fs::read(format!("/proc/{}/cmdline", process.0.id())).expect("its words");
    assert!(!String::from_utf8_lossy(&argv).contains(token));
    let pid = nix::unistd::Pid::from_raw(process.0.id().try_into().expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("told");
    process.0.wait().expect("ended");
    assert!(!std::path::Path::new(path).exists(), "it goes with the hub");
}

#[test]
fn a_foreign_host_is_refused_everywhere() {
    let shop = Workshop::new();
    let hub = Hub::start(&shop);
    for path in ["/", "/healthz", "/metrics", "/ws"] {
        for host in ["Host: evil.example\r\n", "Host: evil.example:80\r\n", "Host:\r\n"] {
            let answer = hub.get(path, host);
            assert!(answer.starts_with("HTTP/1.1 4"), "{path} {host}: {answer}");
            assert!(!answer.contains("shardplan_runs"), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_foreign_origin_is_refused() {
    let shop = Workshop::new();
    let hub = Hub::start_with(&shop, &["--allow-origin", "https://plans.example"], "");
    for origin in ["https://evil.example", "null", "http://localhost:1", "https://plans.example.evil.example"]
    {
        match tokio_tungstenite::connect_async(hub.request(Some(origin))).await {
            Err(tungstenite::Error::Http(answer)) => assert_eq!(answer.status(), 403, "{origin}"),
            other => panic!("{origin}: {other:?}"),
        }
    }
    let own = format!("http://localhost:{}", hub.port);
    for origin in [Some("https://plans.example"), Some(own.as_str()), None] {
        tokio_tungstenite::connect_async(hub.request(origin)).await.expect("connected");
    }
}

#[tokio::test]
async fn only_the_token_opens_the_door() {
    let shop = Workshop::new();
    let hub = Hub::start(&shop);
    for token in ["", "0", &hub.token[1..], &format!("{}0", hub.token)] {
        let mut socket = hub.connect().await;
        send(&mut socket, &ToHub::Hello { token: token.to_owned(), version: 1 }).await;
        refused(socket, "token").await;
    }
    let mut socket = hub.connect().await;
    send(&mut socket, &ToHub::ListRuns).await;
    refused(socket, "first frame").await;
    let mut socket = hub.connect().await;
    send(&mut socket, &ToHub::Hello { token: hub.token.clone(), version: 99 }).await;
    refused(socket, "version 99").await;
    let mut socket = hub.connect().await;
    socket.send(Message::text("{")).await.expect("sent");
    refused(socket, "first frame").await;
    // One that says nothing is not waited for.
    refused(hub.connect().await, "within 5 s").await;
    hub.open().await;
}

/// Whoever reaches the port can connect, and says nothing, or begins to speak to a socket. A limit of open files that many others
/// leave the hub by default is far below what is opened here.
#[tokio::test]
async fn many_who_have_no_token_lock_nobody_out() {
    let shop = Workshop::new();
    let hub = Hub::start_with(&shop, &[], "finish completed");
    let files = rustix::process::Rlimit { current: Some(256), maximum: Some(256) };
    let process = rustix::process::Pid::from_child(&hub.process.0);
    rustix::process::prlimit(Some(process), rustix::process::Resource::Nofile, files).expect("a limit");
    let mut page = hub.open().await;
    let (mut silent, mut greeting) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        for _ in 0..4 {
            silent.push(TcpStream::connect(("127.0.0.1", hub.port)).expect("connected"));
        }
        greeting.push(hub.connect().await);
    }
    let host = format!("Host: localhost:{}\r\n", hub.port);
    assert!(hub.get("/healthz", &host).starts_with("HTTP/1.1 200"));
    hub.open().await;
    // Who was let in before is still there.
    send(&mut page, &ToHub::ListRuns).await;
    assert!(matches!(next(&mut page).await, Some(ToPage::Runs { .. })));
    // Who says nothing for long goes, though nobody else comes.
    let mut last = TcpStream::connect(("127.0.0.1", hub.port)).expect("connected");
    last.set_read_timeout(Some(PATIENCE)).expect("a limit");
    assert_eq!(last.read(&mut [0; 16]).expect("an end"), 0);
}

#[tokio::test]
async fn a_hundred_megabytes_are_refused_and_not_kept() {
    let shop = Workshop::new();
    let hub = Hub::start(&shop);
    let mut socket = hub.open().await;
    let frame = Message::text("x".repeat(100 * 1024 * 1024));
    // The hub closes while this is being sent, so that sending may fail.
    let _ = socket.send(frame).await;
    while let Some(message) = next(&mut socket).await {
        match message {
            ToPage::Error { message } => assert!(message.contains("1048576"), "{message}"),
            other => panic!("{other:?}"),
        }
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", hub.process.0.id())).expect("status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let peak: u64 = peak.trim().trim_end_matches("kB").trim().parse().expect("a number");
    assert!(peak < 64 * 1024, "the hub took {peak} KiB");
    hub.open().await;
}

#[tokio::test]
async fn requests_that_make_no_sense_are_answered() {
    let shop = Workshop::new();
    let hub = Hub::start(&shop);
    let mut socket = hub.open().await;
    for (text, expected) in [
        ("nonsense", "not understood"),
        (r#"{"type": "dance"}"#, "not understood"),
        (r#"{"type": "watch", "run": "../../etc"}"#, "no run"),
        (r#"{"type": "watch", "run": "absent"}"#, "no run"),
        (r#"{"type": "stop", "run": "absent"}"#, "no run"),
        (
            r#"{"type": "start", "plan": {"version": 1, "model": {"preset": "none"}, "cluster": {"gpu": "cpu"}}}"#,
            "none",
        ),
    ] {
        socket.send(Message::text(text)).await.expect("sent");
        match next(&mut socket).await {
            Some(ToPage::Error { message }) => {
                assert!(message.contains(expected), "{expected:?} in {message}")
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

/// A page that asks and never reads is read no further once its answers wait, so that the hub keeps a few of them; and however it goes,
/// the hub ends its session without a panic.
#[tokio::test]
async fn a_page_that_does_not_read_is_not_read_either() {
    const LONG: usize = 32 * 1024;
    let long = "x".repeat(LONG);
    let short = " ".repeat(8);
    // Answers to all of these are as long as what was asked, or longer, and are more than sockets hold.
    for (request, most) in [
        (format!(r#"{{"type": "list_runs"}}{short}"#), 1_000_000),
        (format!(r#"{{"type": "stop", "run": "{long}"}}"#), 2000),
        (format!(r#"{{"type": "mark_dead", "run": "{long}", "rank": 0}}"#), 2000),
        (format!(r#"{{"type": "watch", "run": "{long}"}}"#), 2000),
        ("nonsense".to_owned(), 1_000_000),
    ] {
        let shop = Workshop::new();
        // Of each refused request a line is told otherwise, for which nobody reads.
        let mut hub = Hub::start_with(&shop, &["--log", "error"], "finish completed");
        let mut socket = hub.open().await;
        let mut sent = 0;
        while sent < most {
            let sending = socket.send(Message::text(request.clone()));
            match tokio::time::timeout(Duration::from_secs(2), sending).await {
                Ok(sending) => sending.expect("the hub keeps the socket"),
                Err(_) => break,
            }
            sent += 1;
        }
        assert!(sent < most, "{sent} times {}", request.split(',').next().unwrap_or_default());
        // With answers that nobody reads the connection is broken off, so that the hub can't write any more.
        drop(socket);
        let host = format!("Host: localhost:{}\r\n", hub.port);
        wait_for("the session to end", || {
            hub.get("/metrics", &host).contains("shardplan_connections 0").then_some(())
        });
        hub.open().await;
        let mut stderr = hub.process.0.stderr.take().expect("a pipe");
        hub.kill();
        let mut said = String::new();
        stderr.read_to_string(&mut said).expect("read");
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[tokio::test]
async fn what_pages_ask_for_is_told_on_standard_error_as_far_as_wanted() {
    let asked = "WARN a page asked to stop a run: ";
    let comes = "DEBUG a page is connected";
    for (level, told, not_told) in [
        ("info", &[asked][..], &[comes][..]),
        ("debug", &[asked, comes], &[]),
        ("error", &[], &[asked, comes]),
    ] {
        let shop = Workshop::new();
        let mut hub = Hub::start_with(&shop, &["--log", level], "finish completed");
        let mut socket = hub.open().await;
        send(&mut socket, &ToHub::Stop { run: "none".to_owned() }).await;
        assert!(matches!(next(&mut socket).await, Some(ToPage::Error { .. })));
        let mut stderr = hub.process.0.stderr.take().expect("a pipe");
        let token = hub.token.clone();
        hub.kill();
        let mut said = String::new();
        stderr.read_to_string(&mut said).expect("read");
        assert!(told.iter().all(|line| said.contains(line)), "{level}: {said}");
        assert!(
            not_told.iter().all(|line| !said.contains(line)) && !said.contains(&token),
            "{level}: {said}"
        );
    }
    let answer = Workshop::new().ask(&["serve", "--log", "loud"]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.stderr.contains("a level is off, error, warn, info or debug"), "{answer:?}");
}

#[test]
fn a_port_in_use_and_a_folder_that_can_not_be() {
    let shop = Workshop::new();
    let hub = Hub::start(&shop);
    let answer = shop.ask(&["serve", "--port", &hub.port.to_string()]);
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(3), ""), "{answer:?}");
    assert!(answer.stderr.contains(&hub.port.to_string()) && answer.stderr.contains("--port"), "{answer:?}");
    let answer = shop.ask(&["serve", "--port", "0", "--runs", "tiny.json"]);
    assert_eq!(answer.code, Some(3), "{answer:?}");
}
