//! The picture of the page in README, light and dark: `cargo xtask picture`.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use system_tests::browser::Browser;
use system_tests::hub::Hub;

/// Hook of the page's verdict (`web/src/testid.rs`).
const VERDICT: &str = "answer-verdict";

#[tokio::main]
async fn main() -> Result<()> {
    let runs = tempfile::tempdir()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.url).await?;
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
