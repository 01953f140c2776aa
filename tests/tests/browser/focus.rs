//! The keyboard's focus, and what is read out: nothing that is done loses the focus, what covers the page keeps it, and another answer
//! is one sentence.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::runs::Runs;
use system_tests::wait::{Attempt, SOON, until};

const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";

/// Types where the focus is.
async fn type_keys(browser: &Browser, keys: &str) -> Result<()> {
    browser.selected(":focus").await?.send_keys(keys).await.with_context(|| format!("cannot type {keys:?}"))
}

/// Puts the focus on an element by its hook.
async fn focus(browser: &Browser, hook: &str) -> Result<()> {
    browser.element(hook).await?;
    let focus = "document.querySelector(`[data-testid='${arguments[0]}']`).focus()";
    browser.call(focus, vec![hook.into()]).await.map(drop)
}

/// Waits until the focus is on what a CSS selector finds.
async fn focused(browser: &Browser, selector: &str) -> Result<()> {
    const AT: &str = "
        const at = document.activeElement;
        return [at.matches(arguments[0]), `${at.tagName} ${at.id} ${at.dataset.testid}`]";
    until(&format!("the focus on {selector}"), SOON, async || {
        let at = browser.call(AT, vec![selector.into()]).await?;
        Ok(if at[0] == json!(true) { Attempt::Ready(()) } else { Attempt::NotYet(at.to_string()) })
    })
    .await
}

/// The answer line in the words that are read out.
async fn answer_line(browser: &Browser) -> Result<String> {
    let [verdict, peak, capacity, step] =
        ["answer-verdict", "answer-peak", "answer-capacity", "answer-step"].map(|hook| browser.text(hook));
    Ok(format!("{}, {} of {} GiB, {} a step", verdict.await?, peak.await?, capacity.await?, step.await?))
}

#[tokio::test]
async fn another_answer_is_said_in_one_sentence_and_no_edit_loses_the_focus() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.url).await?;
    browser.text_when("choice", SOON, |text| text.starts_with("The best of")).await?;
    let before = browser.text_when("answer-said", SOON, |said| said.starts_with("Fits, ")).await?;

    // A value that is none, and the nearest that is one: the focus is in its field.
    browser.fill("field-layout-tp", "3").await?;
    browser.text_when("answer-said", SOON, |said| said.starts_with("Invalid, ")).await?;
    browser.selected("[data-field='layout.tp'] [data-testid=finding-nearest]").await?;
    focus(&browser, "finding-nearest").await?;
    type_keys(&browser, ENTER).await?;
    focused(&browser, "[data-testid=field-layout-tp]").await?;
    browser.text_when("choice", SOON, |text| text.starts_with("The best of")).await?;
    let said =
        browser.text_when("answer-said", SOON, |said| said.contains(" GiB, ") && *said != before).await?;
    ensure!(said == answer_line(&browser).await?, "{said}");
    // No table is read out with it.
    let loud = "return Array.from(document.querySelectorAll('[aria-live], [role=status]')).filter(of => of.querySelector('table, button.link')).length";
    browser.element("advice-row").await?;
    ensure!(browser.script(loud).await? == json!(0), "tables are read out");

    // Advice is taken: its row goes away.
    focus(&browser, "advice-apply").await?;
    type_keys(&browser, ENTER).await?;
    focused(&browser, "[data-testid=advice], [data-testid=advice] *").await?;

    // Edits are taken back until there are none.
    focus(&browser, "undo").await?;
    for _ in 0..4 {
        type_keys(&browser, ENTER).await?;
    }
    browser.selected("[data-testid=undo][aria-disabled=true]").await?;
    focused(&browser, "[data-testid=undo]").await?;

    for (key, name) in [(ENTER, "renamed"), (ESCAPE, "renamed")] {
        focus(&browser, "plan-name").await?;
        type_keys(&browser, ENTER).await?;
        focused(&browser, "input[data-testid=plan-name]").await?;
        type_keys(&browser, if key == ENTER { name } else { "nobody's" }).await?;
        type_keys(&browser, key).await?;
        focused(&browser, "button[data-testid=plan-name]").await?;
        browser.text_when("plan-name", SOON, |text| text == name).await?;
    }

    // Who leaves the box by a click is where the click was.
    type_keys(&browser, ENTER).await?;
    focused(&browser, "input[data-testid=plan-name]").await?;
    type_keys(&browser, "left").await?;
    browser.click("field-layout-tp").await?;
    browser.text_when("plan-name", SOON, |text| text == "left").await?;
    focused(&browser, "[data-testid=field-layout-tp]").await?;
    focus(&browser, "plan-name").await?;

    // A number is explained as often as it is asked.
    for _ in 0..2 {
        focus(&browser, "answer-peak").await?;
        type_keys(&browser, ENTER).await?;
        focused(&browser, "[data-testid=why-panel] button").await?;
        type_keys(&browser, ESCAPE).await?;
        focused(&browser, "[data-testid=answer-peak]").await?;
    }
    focus(&browser, "plan-name").await?;

    // While the list of keys is open nothing behind it has the focus or hears a key.
    type_keys(&browser, "?").await?;
    focused(&browser, "[data-testid=help] button").await?;
    type_keys(&browser, "3").await?;
    focus(&browser, "plan-name").await?;
    focused(&browser, "[data-testid=help] button").await?;
    let shown = browser.attribute("tab-memory", "aria-selected").await?;
    ensure!(shown.as_deref() == Some("true"), "a key changed the view behind the list of keys");
    type_keys(&browser, ESCAPE).await?;
    focused(&browser, "button[data-testid=plan-name]").await?;
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
}

#[tokio::test]
async fn the_sheet_of_a_phone_keeps_the_focus_and_gives_it_back() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.url).await?;
    browser.element("answer-verdict").await?;
    browser.resize(360, 740).await?;
    focus(&browser, "sheet-open").await?;
    type_keys(&browser, ENTER).await?;
    focused(&browser, ".inputs *").await?;
    for _ in 0..6 {
        type_keys(&browser, TAB).await?;
        focused(&browser, ".inputs *").await?;
    }
    // The answer line stays in sight.
    let free = "return Array.from(document.querySelectorAll('button, input, a'))
        .filter(one => one.checkVisibility({visibilityProperty: true}) && !one.closest('.answer, .inputs')).map(one => one.textContent)";
    let free = browser.script(free).await?;
    ensure!(free == json!([]), "what lies behind can be reached: {free}");
    // A field for files would take what is typed for a file's name.
    browser.selected("#sheet-done").await?.send_keys(ESCAPE).await?;
    focused(&browser, "[data-testid=sheet-open]").await?;
    // What is edited in it is read out, too.
    type_keys(&browser, ENTER).await?;
    focused(&browser, ".inputs *").await?;
    browser.fill("field-layout-tp", "3").await?;
    browser.text_when("answer-said", SOON, |said| said.starts_with("Invalid, ")).await?;
    type_keys(&browser, ESCAPE).await?;
    focused(&browser, "[data-testid=sheet-open]").await
}
