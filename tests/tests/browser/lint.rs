//! Checking a script on the page: the command line's findings, marked lines, a file that is chosen, and keys alone.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::programs::{expect_code, shardplan};
use system_tests::runs::Runs;
use system_tests::wait::SOON;

const SCRIPT: &str = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\n#SBATCH --time=2h\n\
    export HF_TOKEN=hf_abcdefghijklmnop0123456789\n\
    srun bash -c \"python -m torch.distributed.run --nnodes=2 --nproc_per_node=8 --node_rank=$SLURM_NODEID train.py\"\n";

#[tokio::test]
async fn a_script_has_the_command_lines_findings() -> Result<()> {
    let runs = Runs::new()?;
    let file = runs.beside("job.sbatch");
    std::fs::write(&file, SCRIPT)?;
    let mut command = shardplan()?;
    command.arg("lint").arg(&file).arg("--json");
    let report: Value = serde_json::from_slice(&expect_code(&mut command, 1)?.stdout)?;
    let expected: Vec<Value> = report["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|finding| json!([finding["rule"], finding["line"]]))
        .collect();
    ensure!(expected.len() >= 5, "{report}");

    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    browser.click("tab-script").await?;
    browser.choose_file("lint-file", &file).await?;
    browser.text_when("lint-summary", SOON, |text| text.contains("error")).await?;
    let shown = browser
        .script("return [...document.querySelectorAll('[data-testid=lint-finding]')].map(item => [item.dataset.rule, Number(item.dataset.line)])")
        .await?;
    assert_eq!(shown, Value::from(expected));
    let said = browser.text("lint-findings").await?;
    ensure!(!said.contains("abcdefghijklmnop"), "the page repeats a secret: {said}");
    let marked = browser.script("return document.querySelectorAll('.gutter .error').length").await?;
    ensure!(marked.as_u64().is_some_and(|marked| marked >= 3), "{marked} lines are marked");
    browser.screenshot("lint").await?;

    // A finding's button, reached and pressed by keys, selects what it is about.
    let focused = "const button = document.querySelector('[data-rule=time-format] button'); button.focus(); return document.activeElement === button";
    ensure!(browser.script(focused).await? == json!(true), "a finding can't have the focus");
    browser.selected("[data-rule=time-format] button").await?.send_keys("\n").await?;
    let selected = "const box = document.querySelector('[data-testid=lint-text]'); return document.activeElement === box ? box.value.slice(box.selectionStart, box.selectionEnd) : ''";
    let selected = browser.script(selected).await?;
    ensure!(selected == json!("2h"), "{selected} is selected");

    // Mended by hand.
    browser.paste("lint-text", "#!/bin/bash\n#SBATCH --nodes=1\nsrun hostname\n").await?;
    browser.text_when("lint-summary", SOON, |text| text == "Nothing was found").await?;
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "{errors:?}");
    Ok(())
}
