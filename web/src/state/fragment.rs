//! The part of the address after `#`: a plan's link, or the hub's token on the first visit.

/// What a fragment holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fragment {
    /// The plan: what follows `p=` in `planner::wire::encode_link`'s text.
    pub plan: Option<String>,
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
                Some(("p", value)) if !value.is_empty() => fragment.plan = Some(value.to_owned()),
                Some(("token", value)) if !value.is_empty() => fragment.token = Some(value.to_owned()),
                _ => {}
            }
        }
        fragment
    }
}

/// The fragment that holds a plan and nothing else.
pub fn of_plan(encoded: &str) -> String {
    format!("#p={encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_in_any_order() {
        let both = Fragment { plan: Some("1.abc-_=".into()), token: Some("t0k".into()) };
        assert_eq!(Fragment::parse("#p=1.abc-_=&token=t0k"), both);
        assert_eq!(Fragment::parse("#token=t0k&later=1&p=1.abc-_="), both);
        assert_eq!(Fragment::parse(&of_plan("1.x")).plan.as_deref(), Some("1.x"));
    }

    #[test]
    fn an_empty_or_odd_fragment_holds_nothing() {
        for hash in ["", "#", "#p=", "#token=", "#&&&", "#p", "#=x"] {
            assert_eq!(Fragment::parse(hash), Fragment::default(), "{hash}");
        }
    }
}
