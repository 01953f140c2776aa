//! The part of the address after `#`: a plan's link with the view that it opens, or the hub's token on the first visit.

use super::View;

/// What a fragment holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fragment {
    /// The plan: what follows `p=` in `planner::link::encode_link`'s text.
    pub plan: Option<String>,
    /// The view.
    pub view: Option<View>,
    /// The hub's token.
    pub token: Option<String>,
}

/// Longest link that is looked at. A plan with a pasted config.json takes some thousand characters.
pub const MAX_LINK: usize = 256 * 1024;

impl Fragment {
    /// Reads `#p=...&token=...` in any order; what is unknown is ignored, so that later versions can add to it.
    pub fn parse(hash: &str) -> Fragment {
        let mut fragment = Fragment::default();
        for part in hash.trim_start_matches('#').split('&') {
            match part.split_once('=') {
                Some(("v", value)) => fragment.view = View::of_id(value),
                Some(("p", value)) if !value.is_empty() => fragment.plan = Some(value.to_owned()),
                Some(("token", value)) if !value.is_empty() => fragment.token = Some(value.to_owned()),
                _ => {}
            }
        }
        fragment
    }
}

/// Edits that follow each other within this time, in one view, are one entry of the browser's history.
const JOIN_MS: f64 = 1000.0;

impl Fragment {
    /// The fragment with its `#`; empty where it holds neither plan nor view. The token is never written.
    pub fn written(&self) -> String {
        let plan = self.plan.as_ref().map(|plan| format!("p={plan}"));
        let view = self.view.map(|view| format!("v={}", view.id()));
        let parts: Vec<String> = plan.into_iter().chain(view).collect();
        if parts.is_empty() { String::new() } else { format!("#{}", parts.join("&")) }
    }
}

/// Whether a change that is made in `view` at `now_ms` belongs to the browser's history entry that was written last, in that
/// view and at that time; none where there is none, or somebody walked from it.
pub fn joins(last: Option<(View, f64)>, view: View, now_ms: f64) -> bool {
    last.is_some_and(|(known, at)| known == view && now_ms - at < JOIN_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_in_any_order() {
        let all =
            Fragment { plan: Some("1.abc-_=".into()), view: Some(View::Ranks), token: Some("t0k".into()) };
        assert_eq!(Fragment::parse("#p=1.abc-_=&token=t0k&v=ranks"), all);
        assert_eq!(Fragment::parse("#token=t0k&v=ranks&later=1&p=1.abc-_="), all);
    }

    #[test]
    fn what_is_written_is_read_and_the_token_is_not_written() {
        for view in View::all().map(Some).chain([None]) {
            for plan in [Some("1.x".to_owned()), None] {
                let said = Fragment { plan, view, token: None };
                assert_eq!(Fragment::parse(&said.written()), said);
                let secret = Fragment { token: Some("t0k".into()), ..said.clone() };
                assert_eq!(secret.written(), said.written());
            }
        }
    }

    #[test]
    fn quick_edits_are_one_entry_and_another_view_is_another() {
        let last = Some((View::Memory, 5000.0));
        assert!(joins(last, View::Memory, 5400.0));
        assert!(!joins(last, View::Memory, 6000.0), "later");
        assert!(!joins(last, View::Timeline, 5400.0), "another view");
        assert!(!joins(None, View::Memory, 5400.0), "the first");
    }

    #[test]
    fn an_empty_or_odd_fragment_holds_nothing() {
        for hash in ["", "#", "#p=", "#token=", "#&&&", "#p", "#=x", "#v=", "#v=nothing"] {
            assert_eq!(Fragment::parse(hash), Fragment::default(), "{hash}");
        }
    }
}
