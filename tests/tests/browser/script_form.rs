//! The Script tab: what is typed stands in the script or is refused, examples fill the form, and the command that is
//! copied writes the same bytes.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use batch::launch::{Body, Example, Site, examples};
use frameworks::script;
use planner::Plan;
use serde_json::Value;
use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::programs::{expect_code, program};
use system_tests::runs::Runs;
use system_tests::wait::{Attempt, SOON, until};

/// Keeps what is copied, for no test may read the clipboard of the machine.
const KEEP_COPIES: &str =
    "navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); };";

/// What stands in the script when a line of it is there.
async fn line_when(browser: &Browser, line: &str) -> Result<String> {
    browser.text_when("script-text", SOON, |text| text.lines().any(|known| known == line)).await
}

/// A page that shows its script, and what serves it as long as it is kept.
async fn script_tab() -> Result<(Runs, Hub, Browser)> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    browser.click("tab-script").await?;
    line_when(&browser, "#SBATCH --account=<ACCOUNT>").await?;
    Ok((runs, hub, browser))
}

/// Has the page read a site's file of this text.
async fn read_site(browser: &Browser, text: &str) -> Result<()> {
    let text = serde_json::to_string(text)?;
    let script = format!(
        "const files = new DataTransfer(); files.items.add(new File([{text}], 'site.toml'));
         const input = document.querySelector('[data-testid=site-file]');
         input.files = files.files; input.dispatchEvent(new Event('change', {{bubbles: true}}));"
    );
    browser.script(&script).await.map(drop)
}

#[tokio::test]
async fn a_site_is_read_from_a_file_and_saved_as_one() -> Result<()> {
    let (_runs, _hub, browser) = script_tab().await?;
    let file = "account = \"team\"\npartition = \"h100\"\nmodules = [\"cuda/12.9\"]\n";
    read_site(&browser, file).await?;
    line_when(&browser, "#SBATCH --account=team").await?;
    line_when(&browser, "#SBATCH --partition=h100").await?;
    // What is no site changes nothing.
    read_site(&browser, "acount = \"other\"\n").await?;
    read_site(&browser, "\u{0}garbage").await?;
    line_when(&browser, "#SBATCH --account=team").await?;
    browser
        .script(
            "const create = URL.createObjectURL;
             URL.createObjectURL = blob => { blob.text().then(text => window.saved = text); return create.call(URL, blob); };",
        )
        .await?;
    browser.click("site-save").await?;
    let saved = until("the site's file", SOON, async || {
        let saved = browser.script("return window.saved || ''").await?;
        Ok(match saved.as_str() {
            Some(text) if !text.is_empty() => Attempt::Ready(text.to_owned()),
            _ => Attempt::NotYet(saved.to_string()),
        })
    })
    .await?;
    let [saved, given]: [toml::Table; 2] = [saved.parse()?, file.parse()?];
    ensure!(saved == given, "{saved:?}");
    Ok(())
}

#[tokio::test]
async fn what_is_typed_stands_in_the_script_or_is_refused() -> Result<()> {
    let (_runs, _hub, browser) = script_tab().await?;
    let missing =
        "[...document.querySelectorAll('.site-note')].some(note => note.textContent.includes('<ACCOUNT>'))";
    ensure!(browser.script(&format!("return {missing}")).await? == true, "nothing is said at the empty box");

    browser.fill("site-account", "research").await?;
    line_when(&browser, "#SBATCH --account=research").await?;
    ensure!(browser.script(&format!("return {missing}")).await? == false, "the remark stays");
    browser.fill("site-shared-dir", "/lustre/team a").await?;
    // A blank can be quoted for the shell, and not for Slurm.
    let refused = browser.any_text_when(".findings li", SOON, |text| text.contains("shared_dir")).await?;
    ensure!(refused.contains("can't stand in an #SBATCH line"), "{refused}");
    browser.fill("site-shared-dir", "/lustre/team").await?;
    line_when(&browser, "SHARED_DIR=/lustre/team").await?;
    browser.click("script-cluster").await?;
    browser.choose("site-exclusive", "no").await?;
    let text = browser.text_when("script-text", SOON, |text| !text.contains("--exclusive")).await?;
    browser.fill("site-signal", "B:USR1@300").await?;
    browser.any_text_when(".findings li", SOON, |text| text.contains("batch shell alone")).await?;
    browser.fill("site-signal", "USR1@180").await?;
    line_when(&browser, "#SBATCH --signal=USR1@180").await?;
    browser.choose("script-mode", "torchrun").await?;
    browser.choose("script-body", "mlm").await?;
    line_when(&browser, "#SBATCH --ntasks-per-node=1").await?;
    // Eight tasks that start eight processes each.
    browser.fill("site-ntasks-per-node", "8").await?;
    let refused = browser.any_text_when(".findings li", SOON, |text| text.contains("EADDRINUSE")).await?;
    ensure!(refused.contains("one task a node"), "{refused}");
    browser.screenshot("script-form").await?;

    // Values stay in this browser.
    browser.reload().await?;
    browser.element("answer-verdict").await?;
    browser.click("tab-script").await?;
    let again = line_when(&browser, "#SBATCH --account=research").await?;
    ensure!(again.contains("SHARED_DIR=/lustre/team\n"), "{again}");
    ensure!(text.contains("set -euo pipefail\n"), "{text}");
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "{errors:?}");
    Ok(())
}

#[tokio::test]
async fn the_copied_command_of_every_example_writes_the_bytes_that_are_shown() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    browser.click("tab-script").await?;
    browser.element("script-text").await?;
    browser.script(KEEP_COPIES).await?;
    // Any site will do; a value that needs quotes is among them.
    browser.fill("site-account", "research").await?;
    browser.fill("site-shared-dir", "/lustre/team").await?;
    browser.fill("site-image", "/lustre/team/it's an image.sqsh").await?;
    line_when(&browser, "#SBATCH --account=research").await?;
    let mut site = Site {
        account: Some("research".into()),
        shared_dir: Some("/lustre/team".into()),
        image: Some("/lustre/team/it's an image.sqsh".into()),
        ..Site::default()
    };
    let all = examples();
    let titles: Vec<&str> = all.iter().map(|example| example.title).collect();
    ensure!(titles.iter().filter(|title| title.starts_with("MiniMax-M2 ")).count() == 4, "{titles:?}");
    for example in &all {
        site = example.on(&site);
        check(&browser, example, &site).await.with_context(|| example.title.to_owned())?;
    }
    browser.screenshot("script-example").await?;
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "{errors:?}");
    Ok(())
}

/// Everything that the browser keeps of this page, and its address.
const KEPT: &str = "return JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage), location.href, \
                    document.cookie])";

#[tokio::test]
async fn a_secret_that_is_typed_is_not_kept_and_variables_keep_their_commas() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    // As an earlier version kept it.
    let stale = r#"{"account": "research", "env": {"WANDB_API_KEY": "stale-secret-value"}}"#;
    browser.script(&format!("localStorage.setItem('shardplan.site', {})", Value::from(stale))).await?;
    browser.reload().await?;
    browser.element("answer-verdict").await?;
    browser.click("tab-script").await?;
    line_when(&browser, "#SBATCH --account=research").await?;
    browser.click("script-software").await?;
    let typed = "HF_TOKEN=typed-secret-value, OTHER=hf_abcdefghijklmnopqrst, NCCL_IB_HCA=mlx5_0,mlx5_1";
    browser.fill("site-env", typed).await?;
    let text = browser.text_when("script-text", SOON, |text| text.contains("NCCL_IB_HCA")).await?;
    ensure!(
        text.contains("\nexport NCCL_IB_HCA='mlx5_0,mlx5_1'\n") && text.contains("${HF_TOKEN:?"),
        "{text}"
    );
    browser.fill("site-partition", "main").await?;
    line_when(&browser, "#SBATCH --partition=main").await?;
    for visit in ["the first", "the second"] {
        let kept = browser.script(KEPT).await?.to_string();
        ensure!(kept.contains("mlx5_0,mlx5_1") && kept.contains("main"), "{visit} visit: {kept}");
        ensure!(!kept.contains("secret-value") && !kept.contains("hf_abc"), "{visit} visit: {kept}");
        browser.reload().await?;
        browser.element("answer-verdict").await?;
        browser.click("tab-script").await?;
        line_when(&browser, "export NCCL_IB_HCA='mlx5_0,mlx5_1'").await?;
    }
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "{errors:?}");
    Ok(())
}

/// Chooses an example, copies the command and runs it in an empty folder.
async fn check(browser: &Browser, example: &Example, site: &Site) -> Result<()> {
    let plan = Plan::resolve(&example.plan).plan.context("no plan")?;
    let (expected, _) = script(&plan, site, &example.options);
    // WebDriver's own way of choosing stumbles over an apostrophe in a title.
    let choose = format!(
        "const list = document.querySelector('[data-testid=script-example]'); list.value = {}; \
         list.dispatchEvent(new Event('change', {{bubbles: true}})); return list.value",
        Value::from(example.title)
    );
    ensure!(browser.script(&choose).await? == example.title, "the form does not offer this example");
    browser.text_when("script-text", SOON, |text| text == expected).await?;
    browser.script("window.copied = ''").await?;
    browser.click("script-command-copy").await?;
    let copied = until("a copied command", SOON, || async {
        let copied = browser.script("return window.copied").await?;
        let text = copied.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        Ok(text.map_or_else(|| Attempt::NotYet("nothing was copied".to_owned()), Attempt::Ready))
    });
    let copied = &copied.await?;
    ensure!(copied.contains("shardplan script plan.json --mode"), "{copied}");

    let folder = tempfile::tempdir()?;
    let programs = program("shardplan")?;
    let programs = programs.parent().context("no folder of programs")?.display().to_string();
    let mut bash = Command::new("bash");
    bash.args(["-euc", copied]).current_dir(folder.path()).env("PATH", format!("{programs}:/usr/bin:/bin"));
    expect_code(&mut bash, 0)?;
    let written = std::fs::read_to_string(folder.path().join("job.sbatch"))?;
    ensure!(written == expected, "the command writes {written}");

    // The page's own linter finds nothing in it. Steps to paste are no batch script, and are read all the same.
    browser.paste("lint-text", &expected).await?;
    let said = browser.text_when("lint-summary", SOON, |text| !text.is_empty()).await?;
    let clean = batch::lint::lint(expected.as_bytes());
    ensure!(clean.is_clean(), "{clean:?}");
    ensure!(said == "Nothing was found" || said.starts_with("0 errors, 0 warnings"), "{said}");
    if example.options.body == Body::Bridge {
        let marked = browser.script("return document.querySelectorAll('.gutter .error').length").await?;
        ensure!(marked == 0, "{marked} lines are marked");
    }
    Ok(())
}
