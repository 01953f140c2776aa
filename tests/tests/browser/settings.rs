//! Settings of training on the page: each shows when it matters, is set by a click, and a wrong one is mended by one.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use planner::rules::is_asked;
use planner::runtime::Runtime;
use planner::wire::{Kind, Part, PlanFile, Setting};
use serde_json::{Value, json};
use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::runs::Runs;
use system_tests::wait::SOON;

async fn open(runs: &Runs) -> Result<(Hub, Browser)> {
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    let plan = json!({
        "version": 1, "name": "settings", "model": {"preset": "mixtral-8x7b"},
        "cluster": {"gpu": "h100-sxm", "nodes": 2}, "layout": {"ep": 8},
    });
    browser.paste("config-paste", &plan.to_string()).await?;
    browser.click("config-apply").await?;
    browser.text_when("plan-name", SOON, |name| name.contains("settings")).await?;
    browser.click("section-training").await?;
    Ok((hub, browser))
}

/// The plan in the address, once it is as wanted.
async fn plan_when(browser: &Browser, wanted: impl Fn(&PlanFile) -> bool) -> Result<PlanFile> {
    for _ in 0..100 {
        let address = browser.address().await?;
        if let Some((_, link)) = address.split_once('#')
            && let Ok(plan) = planner::link::decode_link(link)
            && wanted(&plan)
        {
            return Ok(plan);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the plan in the address is {}", browser.address().await?)
}

#[tokio::test]
async fn recomputed_modules_are_chosen_once_recomputation_is_selective() -> Result<()> {
    let runs = Runs::new()?;
    let (_hub, browser) = open(&runs).await?;
    let modules = "field-training-recompute-modules";
    ensure!(
        browser.elements(modules).await?.is_empty(),
        "modules are offered without selective recomputation"
    );
    browser.choose("field-training-recompute-granularity", "selective").await?;
    browser.click(&format!("{modules}-moe_act")).await?;
    let chosen =
        |plan: &PlanFile| plan.training.recompute.modules.as_deref() == Some(&["moe_act".to_owned()]);
    plan_when(&browser, chosen).await?;
    browser.choose("field-training-recompute-granularity", "full").await?;
    ensure!(browser.elements(modules).await?.is_empty(), "modules are offered with full recomputation");
    browser.element("field-training-recompute-method").await?;
    browser.screenshot("settings-recompute").await?;
    Ok(())
}

#[tokio::test]
async fn a_setting_against_a_rule_opens_its_part_and_a_click_mends_it() -> Result<()> {
    let runs = Runs::new()?;
    let (_hub, browser) = open(&runs).await?;
    browser.click("more-training-more").await?;
    browser.click("field-training-overlap-tp").await?;
    let finding = "[data-testid=finding][data-field='training.overlap.tp'][data-severity=error]";
    let said = browser.any_text_when(finding, SOON, |text| text.contains("sequence parallel")).await?;
    ensure!(said.contains("tp is 1"), "{said}");
    let line = browser.text("more-training-more").await?;
    ensure!(line.contains("1 set"), "the line says {line}");
    browser.screenshot("settings-more").await?;
    browser.selected(&format!("{finding} [data-testid=finding-nearest]")).await?.click().await?;
    let plan = plan_when(&browser, |plan| plan.training.overlap.tp == Some(false)).await?;
    let resolved = planner::Plan::resolve(&plan);
    resolved.plan.context("the mended plan breaks a rule")?;
    Ok(())
}

/// Gives each control of a list a value as a person does, where it is there, one after the other: what was typed, chosen or ticked;
/// null for what is not there.
const GIVE: &str = "
    const [controls, round] = arguments;
    const give = (id, text) => {
        const control = document.getElementById(id);
        if (!control) return null;
        const say = (name) => control.dispatchEvent(new Event(name, {bubbles: true}));
        if (control.type === 'checkbox') { control.click(); return String(control.checked); }
        if (control.tagName === 'FIELDSET') {
            const box = [...control.querySelectorAll('input')].find((box) => !box.checked);
            box.click();
            return box.nextElementSibling.textContent;
        }
        if (control.tagName === 'SELECT') {
            const others = [...control.options].map((option) => option.value)
                .filter((word) => word !== '' && word !== control.value);
            control.value = others[round % others.length];
            say('change');
            return control.value;
        }
        control.value = text;
        say('input');
        say('change');
        return text;
    };
    return (async () => {
        const given = [];
        for (const [id, text] of controls) {
            given.push(give(id, text));
            // What follows from it is drawn after this turn of the event loop.
            await new Promise((done) => setTimeout(done, 0));
        }
        return given;
    })();
";

/// Id of a setting's control.
fn id_of(setting: &Setting) -> String {
    format!("field-{}", setting.path.replace(['.', '_'], "-"))
}

/// What is typed for a setting.
fn typed(setting: &Setting) -> String {
    match setting.kind {
        Kind::Whole { least, most } => most.min(least + 1).to_string(),
        Kind::Real { least, most } => (least + 0.5).min(most).to_string(),
        _ => "some words".to_owned(),
    }
}

/// Whether the plan says at the setting's path what its control was given.
fn says(plan: &PlanFile, setting: &Setting, given: &str) -> bool {
    let file = serde_json::to_value(plan).unwrap_or_default();
    let value = setting.path.split('.').try_fold(&file, |place, key| place.get(key));
    match value {
        Some(Value::String(text)) => text == given,
        Some(Value::Array(names)) => names.iter().any(|name| name == given),
        Some(Value::Object(parts)) => parts.values().any(|part| part == given),
        Some(Value::Number(number)) => number.as_f64() == given.parse().ok(),
        Some(Value::Bool(on)) => given.parse() == Ok(*on),
        _ => false,
    }
}

#[tokio::test]
async fn every_setting_of_a_plan_is_in_the_form_and_sets_it() -> Result<()> {
    let runs = Runs::new()?;
    let (_hub, browser) = open(&runs).await?;
    let mut given = BTreeSet::new();
    for (round, runtime) in Runtime::ALL.into_iter().enumerate() {
        let plan = json!({
            "version": 1, "name": runtime.name(), "model": {"preset": "mixtral-8x7b"}, "runtime": runtime.name(),
            "cluster": {"gpu": "h100-sxm", "nodes": 2}, "training": {"dtype": "fp16"},
        });
        browser.paste("config-paste", &plan.to_string()).await?;
        browser.click("config-apply").await?;
        browser.text_when("plan-name", SOON, |name| name.contains(runtime.name())).await?;
        let file =
            planner::parse_plan(&plan.to_string()).map_err(|findings| anyhow::anyhow!("{findings:?}"))?;
        let resolved = planner::Plan::resolve(&file);
        let filled = resolved.filled().context("a filled plan")?;
        let asked = Setting::all().filter(|setting| is_asked(setting, filled, true)).map(id_of);
        let asked = json!(asked.collect::<Vec<String>>());
        let lacking = "return arguments[0].filter((id) => !document.getElementById(id));";
        let lacking = browser.call(lacking, vec![asked]).await?;
        ensure!(lacking == json!([]), "with {} the form lacks {lacking}", runtime.name());
        // What hides others comes after them, and texts, which are no plan's, last; what another setting brings with it comes in
        // the second turn.
        let in_form = |setting: &&Setting| setting.part != Part::Apart && setting.path != "runtime";
        let mut all: Vec<&Setting> = Setting::all().filter(in_form).collect();
        let hides = |path: &str| matches!(path, "training.dtype" | "training.loss_scale.fixed");
        all.sort_by_key(|setting| (setting.kind == Kind::Text, hides(setting.path)));
        for _ in 0..2 {
            all.retain(|setting| !given.contains(&(setting.path, round)));
            let controls: Vec<Value> =
                all.iter().map(|setting| json!([id_of(setting), typed(setting)])).collect();
            let values = browser.call(GIVE, vec![json!(controls), json!(round + 1)]).await?;
            let values = values.as_array().context("values")?;
            let said: Vec<(&&Setting, &str)> = all
                .iter()
                .zip(values)
                .filter_map(|(setting, value)| Some((setting, value.as_str()?)))
                .collect();
            let wrong =
                |plan: &PlanFile| said.iter().find(|(setting, value)| !says(plan, setting, value)).copied();
            if plan_when(&browser, |plan| wrong(plan).is_none()).await.is_err() {
                let plan = plan_when(&browser, |_| true).await?;
                let (setting, value) = wrong(&plan).context("a wrong field")?;
                anyhow::bail!("with {} {} was given {value}: {plan:?}", runtime.name(), setting.path);
            }
            given.extend(said.iter().map(|(setting, _)| (setting.path, round)));
        }
    }
    let is_given = |path: &str| given.iter().any(|(given, _)| *given == path);
    let never: Vec<&str> = Setting::all()
        .filter(|setting| setting.part != Part::Apart && setting.path != "runtime" && !is_given(setting.path))
        .map(|setting| setting.path)
        .collect();
    // A plan of fp16 has no layers in 8 bits.
    let low = |path: &&&str| Setting::at_path(path).is_none_or(|setting| setting.part != Part::LowPrecision);
    let never: Vec<&&str> = never.iter().filter(low).collect();
    ensure!(never.is_empty(), "no plan had {never:?}");
    browser.screenshot("settings-all").await?;
    ensure!(browser.console_errors().await?.is_empty(), "{:?}", browser.console_errors().await?);
    Ok(())
}
