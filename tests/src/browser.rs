//! A real, headless Chromium, driven over WebDriver by chromedriver.
//!
//! Tests find elements by `data-testid` alone, so that the look of the page can change.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fantoccini::elements::Element;
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_tungstenite::tungstenite::http::Method;
use url::{ParseError, Url};

use crate::memory;
use crate::process::{Guarded, Lines};
use crate::programs;
use crate::wait::{Attempt, LONG, SOON, until};

/// What a browser draws with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Graphics {
    /// No GPU at all.
    None,
    /// WebGPU, on a GPU that is computed.
    WebGpu,
}

/// A browser with one page. Dropped, it is gone with all its processes.
pub struct Browser {
    client: Client,
    // In this order they are dropped: first the processes, then their folder.
    driver: Guarded,
    _lines: Lines,
    _profile: TempDir,
}

/// Ports that chromedriver may try.
const PORTS: usize = 5;
/// What it says of one that it can't have.
const PORT_IS_TAKEN: &str = "port not available";

/// A chromedriver with its own session for the log, and the port that it listens on.
fn driver(profile: &TempDir) -> Result<(Guarded, Lines, u16)> {
    let mut command = Command::new(programs::system_program("chromedriver")?);
    // A home of its own: some machines have none that can be written. What Chromium shares
    // between its processes lies in temporary files that it leaves when it is ended, so these are the profile's too.
    command.arg("--port=0").env("HOME", profile.path()).env("TMPDIR", profile.path());
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let (driver, lines) = Guarded::with_lines(&mut command)?;
    let port = lines.find("a port", SOON, |line| {
        let (_, port) = line.split_once("successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    })?;
    Ok((driver, lines, port))
}

impl Browser {
    /// Starts one with an empty profile and without a GPU.
    pub async fn start() -> Result<Browser> {
        Browser::start_with(Graphics::None).await
    }

    /// Starts one with an empty profile.
    pub async fn start_with(graphics: Graphics) -> Result<Browser> {
        let profile = tempfile::Builder::new().prefix("shardplan-browser-").tempdir()?;
        let mut started = driver(&profile);
        // It takes a port of the system's for IPv6, and ends when another program has that one for IPv4.
        for _ in 1..PORTS {
            if started.as_ref().is_err_and(|error| error.to_string().contains(PORT_IS_TAKEN)) {
                started = driver(&profile);
            }
        }
        let (driver, lines, port) = started?;
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities(&profile, graphics)?.into_iter().collect())
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .context("chromedriver could not start Chromium")?;
        client.set_window_size(1440, 1000).await?;
        Ok(Browser { client, driver, _lines: lines, _profile: profile })
    }

    /// Shows the page in a window of this size, smaller than windows of a desktop can be.
    pub async fn resize(&self, width: u32, height: u32) -> Result<()> {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        let command = OfChromium("Emulation.setDeviceMetricsOverride", size);
        self.client.issue_cmd(command).await.context("chromedriver can't set the size of the page")?;
        Ok(())
    }

    /// Runs JavaScript in each page that is opened from now on, before the page's own.
    pub async fn before_each_page(&self, script: &str) -> Result<()> {
        let command = OfChromium("Page.addScriptToEvaluateOnNewDocument", json!({"source": script}));
        self.client.issue_cmd(command).await.context("chromedriver takes no script for pages")?;
        Ok(())
    }

    /// Opens an address.
    pub async fn open(&self, url: &str) -> Result<()> {
        self.client.goto(url).await.with_context(|| format!("cannot open {url}"))
    }

    /// Loads the page again.
    pub async fn reload(&self) -> Result<()> {
        self.client.refresh().await.context("cannot reload the page")
    }

    /// Goes back in the browser's history.
    pub async fn back(&self) -> Result<()> {
        self.client.back().await.context("cannot go back")
    }

    /// Goes forward in the browser's history.
    pub async fn forward(&self) -> Result<()> {
        self.client.forward().await.context("cannot go forward")
    }

    /// The page's address.
    pub async fn address(&self) -> Result<String> {
        Ok(self.client.current_url().await?.to_string())
    }

    /// The element with a hook, once it is there.
    pub async fn element(&self, hook: &str) -> Result<Element> {
        let selector = format!("[data-testid=\"{hook}\"]");
        self.selected(&selector).await
    }

    /// The first element that a CSS selector finds, once it is there.
    pub async fn selected(&self, selector: &str) -> Result<Element> {
        let wait = self.client.wait().at_most(SOON).every(Duration::from_millis(50));
        wait.for_element(Locator::Css(selector)).await.with_context(|| format!("the page has no {selector}"))
    }

    /// All elements with a hook, at once.
    pub async fn elements(&self, hook: &str) -> Result<Vec<Element>> {
        Ok(self.client.find_all(Locator::Css(&format!("[data-testid=\"{hook}\"]"))).await?)
    }

    /// Clicks, after scrolling as a person would: what is at the window's edge may be under the sticky header.
    pub async fn click(&self, hook: &str) -> Result<()> {
        self.scroll_to(hook).await?;
        let element = self.element(hook).await?;
        element.click().await.with_context(|| format!("cannot click {hook}"))
    }

    /// Types into a field, in place of what is in it, as a person would.
    pub async fn fill(&self, hook: &str, text: &str) -> Result<()> {
        const SELECT_ALL: &str = "\u{e009}a\u{e000}";
        let element = self.element(hook).await?;
        element.click().await.with_context(|| format!("cannot click {hook}"))?;
        element.send_keys(SELECT_ALL).await?;
        element.send_keys(text).await.with_context(|| format!("cannot type into {hook}"))
    }

    /// Puts a long text into a field at once, as a paste does: one `input` event.
    pub async fn paste(&self, hook: &str, text: &str) -> Result<()> {
        let element = self.element(hook).await?;
        element.click().await.with_context(|| format!("cannot click {hook}"))?;
        let script = "arguments[0].select(); document.execCommand('insertText', false, arguments[1]);";
        self.client.execute(script, vec![serde_json::to_value(element)?, Value::from(text)]).await?;
        Ok(())
    }

    /// Chooses a file.
    pub async fn choose_file(&self, hook: &str, file: &Path) -> Result<()> {
        let element = self.element(hook).await?;
        let path = file.to_str().context("the file's path is not text")?;
        element.send_keys(path).await.with_context(|| format!("cannot choose {path} at {hook}"))
    }

    /// Scrolls an element into the middle of the window.
    pub async fn scroll_to(&self, hook: &str) -> Result<()> {
        let element = serde_json::to_value(self.element(hook).await?)?;
        self.client.execute("arguments[0].scrollIntoView({block: 'center'})", vec![element]).await?;
        Ok(())
    }

    /// Chooses in a list.
    pub async fn choose(&self, hook: &str, value: &str) -> Result<()> {
        let element = self.element(hook).await?;
        element.select_by_value(value).await.with_context(|| format!("{hook} does not offer {value}"))
    }

    /// The text of an element, as the page holds it: layout does not change it.
    pub async fn text(&self, hook: &str) -> Result<String> {
        let element = self.element(hook).await?;
        Ok(element.prop("textContent").await?.unwrap_or_default())
    }

    /// An attribute of an element.
    pub async fn attribute(&self, hook: &str, name: &str) -> Result<Option<String>> {
        Ok(self.element(hook).await?.attr(name).await?)
    }

    /// Waits until an element's text satisfies `is_right`, and gives it.
    pub async fn text_when(
        &self,
        hook: &str,
        limit: Duration,
        is_right: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let what = format!("the right text in {hook}");
        until(&what, limit, async || {
            // A view that is drawn anew takes its old elements away between being found and being read.
            let text = self.text(hook).await.unwrap_or_default();
            Ok(if is_right(&text) { Attempt::Ready(text) } else { Attempt::NotYet(format!("{text:?}")) })
        })
        .await
        .with_context(|| format!("while waiting for {hook}"))
    }

    /// Waits until one of the elements that a CSS selector finds has a text that satisfies `is_right`.
    pub async fn any_text_when(
        &self,
        selector: &str,
        limit: Duration,
        is_right: impl Fn(&str) -> bool,
    ) -> Result<String> {
        const TEXTS: &str =
            "return Array.from(document.querySelectorAll(arguments[0]), element => element.textContent)";
        until(&format!("the right text among {selector}"), limit, async || {
            let texts = self.client.execute(TEXTS, vec![Value::from(selector)]).await?;
            let texts: Vec<String> = serde_json::from_value(texts)?;
            Ok(match texts.iter().find(|text| is_right(text)) {
                Some(text) => Attempt::Ready(text.clone()),
                None => Attempt::NotYet(format!("{texts:?}")),
            })
        })
        .await
    }

    /// Waits until an element's attribute is a number that satisfies `is_right`, and gives it.
    pub async fn number_when(
        &self,
        hook: &str,
        name: &str,
        limit: Duration,
        is_right: impl Fn(f64) -> bool,
    ) -> Result<f64> {
        let what = format!("the right {name} of {hook}");
        until(&what, limit, async || {
            let value = self.attribute(hook, name).await.unwrap_or_default();
            let number = value.as_deref().and_then(|value| value.parse().ok());
            Ok(match number {
                Some(number) if is_right(number) => Attempt::Ready(number),
                _ => Attempt::NotYet(format!("{value:?}")),
            })
        })
        .await
    }

    /// Runs JavaScript in the page and gives its value.
    pub async fn script(&self, script: &str) -> Result<Value> {
        self.call(script, Vec::new()).await
    }

    /// Runs JavaScript in the page with these arguments and gives its value.
    pub async fn call(&self, script: &str, arguments: Vec<Value>) -> Result<Value> {
        Ok(self.client.execute(script, arguments).await?)
    }

    /// Bytes that the page's process has in memory of its own, its workers among them.
    pub fn page_bytes(&self) -> Result<u64> {
        let driver = u32::try_from(self.driver.pid()?.as_raw())?;
        let pages = memory::resident_below(driver, "--type=renderer")?;
        // Chromium keeps a spare one, which is smaller.
        pages.into_iter().max().context("Chromium has no process for a page")
    }

    /// What the page has reported to the console as an error since the last such question.
    pub async fn console_errors(&self) -> Result<Vec<String>> {
        let entries = self.client.issue_cmd(ConsoleLog).await.context("chromedriver gives no console log")?;
        let is_error = |entry: &&Value| entry["level"] == "SEVERE";
        Ok(entries
            .as_array()
            .into_iter()
            .flatten()
            .filter(is_error)
            .map(|entry| entry["message"].to_string())
            .collect())
    }

    /// Writes a picture of the page for people to look at, and says where.
    pub async fn screenshot(&self, name: &str) -> Result<PathBuf> {
        let path = programs::look_folder("screenshots")?.join(format!("{name}.png"));
        let picture = self.client.screenshot().await?;
        if picture.is_empty() {
            bail!("the screenshot {name} is empty");
        }
        std::fs::write(&path, picture).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// chromedriver's own command for the console's log; WebDriver has none.
#[derive(Debug)]
struct ConsoleLog;

impl WebDriverCompatibleCommand for ConsoleLog {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(json!({"type": "browser"}).to_string()))
    }
}

/// A command of Chromium's own, such as that for the size of the page (a window has a least width), and what it is given.
#[derive(Debug)]
struct OfChromium(&'static str, Value);

impl WebDriverCompatibleCommand for OfChromium {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        let body = json!({"cmd": self.0, "params": self.1});
        (Method::POST, Some(body.to_string()))
    }
}

fn capabilities(profile: &TempDir, graphics: Graphics) -> Result<Vec<(String, Value)>> {
    let chromium = programs::system_program("chromium")?;
    let mut arguments = vec![
        "--headless=new".to_owned(),
        // Neither a container nor root has the sandbox; the page under test is ours.
        "--no-sandbox".to_owned(),
        "--disable-dev-shm-usage".to_owned(),
        "--disable-quic".to_owned(),
        "--no-first-run".to_owned(),
        "--disable-background-networking".to_owned(),
        "--disable-component-update".to_owned(),
        "--disable-sync".to_owned(),
        format!("--user-data-dir={}", profile.path().join("profile").display()),
    ];
    let of_graphics: &[&str] = match graphics {
        Graphics::None => &["--disable-gpu"],
        Graphics::WebGpu => &[
            "--enable-unsafe-webgpu",
            "--use-webgpu-adapter=swiftshader",
            "--enable-unsafe-swiftshader",
            "--enable-features=Vulkan",
        ],
    };
    arguments.extend(of_graphics.iter().map(|&argument| argument.to_owned()));
    Ok(vec![
        ("browserName".to_owned(), json!("chrome")),
        // Chromium's own limit of 30 s is one that a busy machine reaches.
        ("timeouts".to_owned(), json!({"script": LONG.as_millis()})),
        ("goog:chromeOptions".to_owned(), json!({"binary": chromium, "args": arguments})),
        ("goog:loggingPrefs".to_owned(), json!({"browser": "ALL"})),
    ])
}
