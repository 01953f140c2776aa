//! The picture of the page in README, light and dark: `cargo xtask picture`.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use page_hooks::{PRESET_SELECT, VERDICT};
use system_tests::browser::Browser;
use system_tests::hub::Hub;

/// Hooks of the page (`web/src/testid.rs`).
mod page_hooks {
    pub const PRESET_SELECT: &str = "preset-select";
    pub const VERDICT: &str = "answer-verdict";
}

/// What is on the picture.
const PRESET: &str = "qwen3-30b-a3b";

#[tokio::main]
async fn main() -> Result<()> {
    let runs = tempfile::tempdir()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.url).await?;
    browser.choose(PRESET_SELECT, PRESET).await?;
    browser.text_when(VERDICT, Duration::from_secs(60), |text| text == "Fits").await?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/pictures");
    std::fs::create_dir_all(&folder)?;
    for theme in ["light", "dark"] {
        browser.script(&format!("document.documentElement.setAttribute('data-theme', '{theme}')")).await?;
        // Charts are drawn again.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let taken = browser.screenshot(&format!("readme-{theme}")).await?;
        let kept = folder.join(format!("page-{theme}.png"));
        std::fs::copy(&taken, &kept).with_context(|| format!("cannot write {}", kept.display()))?;
        writeln!(std::io::stdout(), "{}", kept.canonicalize()?.display())?;
    }
    Ok(())
}
