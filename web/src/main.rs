//! The page: it holds a plan file, asks planner about it, and draws the answer. It computes nothing of its own.

mod app;
mod browser;
mod canvas;
mod chart;
mod fields;
mod findings;
mod format;
mod frame;
mod hub;
mod kit;
mod map;
mod search;
mod sections;
mod state;
mod testid;
mod texts;
mod timeline;
mod views;

fn main() {
    // Only for the console: no input is meant to get here.
    console_error_panic_hook::set_once();
    state::theme::Theme::stored().apply();
    // In a task of its own, as everything that takes long.
    let mount = || {
        if let Some(loading) = gloo::utils::document().get_element_by_id("loading") {
            loading.remove();
        }
        leptos::mount::mount_to_body(app::App);
    };
    gloo::timers::callback::Timeout::new(0, mount).forget();
}
