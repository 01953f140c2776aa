//! What surrounds the views: the answer line, the tabs, the panel behind a number, help, keys, the focus.

mod answer_line;
mod focus;
mod help;
mod keys;
mod later;
mod number;
mod said;
mod tabs;
mod toast;
mod why;

pub use answer_line::{AnswerLine, VerdictMark, verdict_of};
pub use focus::lend_focus;
pub use help::Help;
pub use keys::listen_to_keys;
pub use later::Later;
pub use number::Figure;
pub use said::Said;
pub use tabs::Tabs;
pub use toast::Toast;
pub use why::WhyPanel;
