//! Slurm's node lists, as far as rank 0's host asks: the first name.

/// The first host of a node list such as `rack[1-2]n[01-04]-ib,login1`; none when there is no name in it.
pub fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut characters = list.trim().chars();
    while let Some(character) = characters.next() {
        match character {
            ',' => break,
            '[' => {
                let inside: String = characters.by_ref().take_while(|&character| character != ']').collect();
                host.push_str(inside.split([',', '-']).next()?);
            }
            _ => host.push(character),
        }
    }
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::first_host;

    #[track_caller]
    fn check(list: &str, expected: &str) {
        assert_eq!(first_host(list).as_deref(), Some(expected), "{list}");
    }

    #[test]
    fn first_hosts_of_the_worked_examples() {
        check("node[001-004]", "node001");
        check("node[001,003,005]", "node001");
        check("nodeA,nodeB[001,003]", "nodeA");
        check("compute-gpu-[10-20]", "compute-gpu-10");
    }

    #[test]
    fn several_brackets_and_suffixes() {
        check("rack[1-2]n[01-04]", "rack1n01");
        check("node[07,09]-ib,other", "node07-ib");
        check(" single ", "single");
        assert_eq!(first_host(""), None);
        assert_eq!(first_host(",a"), None);
    }
}
