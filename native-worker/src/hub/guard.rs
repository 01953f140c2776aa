//! Who may talk to the hub.
//!
//! Three locks, each against something else. Host: a foreign name that was made to resolve to this machine (DNS
//! rebinding). Origin: a page from elsewhere in the user's browser, which may open sockets to anything. Token: any
//! other program or user of this machine.

use std::net::IpAddr;

use subtle::ConstantTimeEq;

/// Whether `host` (the Host header) names this hub. The port is not looked at: behind an ssh tunnel it is another,
/// and a rebound name is foreign whatever its port.
pub fn host_is_ours(host: &str, bind: IpAddr, machine: &str) -> bool {
    let name = without_port(host).to_ascii_lowercase();
    if ["localhost", "127.0.0.1", "[::1]"].contains(&name.as_str()) {
        return true;
    }
    if bind.is_loopback() {
        return false;
    }
    // Open to the network: an address can't be rebound, and this machine's own names are its own.
    let machine = machine.to_ascii_lowercase();
    let short = machine.split('.').next().unwrap_or(&machine);
    name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() || name == machine || name == short
}

/// Whether a page of `origin` may open the socket. Programs that are not browsers send none; they need the token.
pub fn origin_may_connect(origin: Option<&str>, host: &str, port: u16, allowed: &[String]) -> bool {
    let Some(origin) = origin else { return true };
    if allowed.iter().any(|allowed| allowed == origin) {
        return true;
    }
    let Some(authority) = origin.strip_prefix("http://") else { return false };
    let loopback = ["localhost", "127.0.0.1", "[::1]"];
    authority == host || loopback.iter().any(|name| authority == format!("{name}:{port}"))
}

/// Compares in a time that tells nothing of the token.
pub fn token_is_right(given: &str, token: &str) -> bool {
    given.as_bytes().ct_eq(token.as_bytes()).into()
}

fn without_port(host: &str) -> &str {
    if host.starts_with('[') {
        return host.find(']').map_or(host, |end| &host[..=end]);
    }
    host.split(':').next().unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const ALL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

    #[test]
    fn hosts() {
        for host in ["127.0.0.1:7878", "localhost", "LOCALHOST:1", "[::1]:7878"] {
            assert!(host_is_ours(host, LOOPBACK, "node1"), "{host}");
        }
        for host in ["evil.example:7878", "localhost.evil.example", "10.0.0.7:7878", "node1", "", "[::2]"] {
            assert!(!host_is_ours(host, LOOPBACK, "node1"), "{host}");
        }
        for host in ["10.0.0.7:7878", "node1:7878", "node1.cluster"] {
            assert!(host_is_ours(host, ALL, "node1.cluster"), "{host}");
        }
        assert!(!host_is_ours("evil.example", ALL, "node1.cluster"));
    }

    #[test]
    fn origins() {
        let allowed = ["https://plans.example".to_owned()];
        let may = |origin| origin_may_connect(origin, "localhost:9000", 7878, &allowed);
        for origin in [
            None,
            Some("http://localhost:9000"),
            Some("http://127.0.0.1:7878"),
            Some("https://plans.example"),
        ] {
            assert!(may(origin), "{origin:?}");
        }
        for origin in [
            "http://localhost:3000",
            "https://evil.example",
            "null",
            "",
            "https://plans.example.evil.example",
        ] {
            assert!(!may(Some(origin)), "{origin}");
        }
    }

    #[test]
    fn tokens() {
        assert!(token_is_right("abc", "abc"));
        assert!(!token_is_right("abd", "abc"));
        assert!(!token_is_right("", "abc"));
    }
}
