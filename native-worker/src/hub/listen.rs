//! Where the hub listens. `localhost` names two addresses, of IPv4 and IPv6, and whoever has the port of the other one
//! would be sent the token by a browser or a tunnel that takes that one. So the hub has the port of both or of none.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::errno::Errno;
use tokio::net::TcpListener;

use crate::report::Failure;

const LOOPBACKS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
/// Ports that are tried when any will do: another program may have the other family's port.
const TRIES: usize = 64;

/// Where the hub listens.
pub struct Bound<T> {
    /// One for each address.
    pub listeners: Vec<T>,
    /// The address that was asked for, or the loopback address that there is.
    pub address: IpAddr,
    /// The port of all of them.
    pub port: u16,
}

/// Listens on `bind`, and where that takes in one loopback address on the other as well.
///
/// # Errors
/// When the port is taken at any of these addresses, or there is no such address.
pub async fn listen(bind: IpAddr, port: u16) -> anyhow::Result<Bound<TcpListener>> {
    let bound = listen_by(bind, port, |address| {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    });
    let bound = bound.map_err(|(address, error)| Failure::environment(sentence(address, &error)))?;
    let listeners = bound.listeners.into_iter().map(TcpListener::from_std).collect::<Result<_>>()?;
    Ok(Bound { listeners, address: bound.address, port: bound.port })
}

/// The addresses: the one that was asked for first.
fn addresses(bind: IpAddr) -> Vec<IpAddr> {
    let mut all = vec![bind];
    if LOOPBACKS.contains(&bind) {
        all.extend(LOOPBACKS.into_iter().filter(|other| *other != bind));
    } else if bind == IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
        // Of IPv4 alone; that of IPv6 takes in both.
        all.push(LOOPBACKS[1]);
    }
    all
}

/// The same with any way to listen, which gives a listener and its port.
fn listen_by<T>(
    bind: IpAddr,
    port: u16,
    open: impl Fn(SocketAddr) -> Result<(T, u16)>,
) -> std::result::Result<Bound<T>, (SocketAddr, Error)> {
    let mut tries = if port == 0 { TRIES } else { 1 };
    loop {
        tries -= 1;
        match listen_once(bind, port, &open) {
            Err((_, error)) if error.kind() == ErrorKind::AddrInUse && tries > 0 => {}
            done => return done,
        }
    }
}

fn listen_once<T>(
    bind: IpAddr,
    port: u16,
    open: &impl Fn(SocketAddr) -> Result<(T, u16)>,
) -> std::result::Result<Bound<T>, (SocketAddr, Error)> {
    let addresses = addresses(bind);
    let last = addresses.len() - 1;
    let mut bound = Bound { listeners: Vec::new(), address: bind, port };
    for (index, &ip) in addresses.iter().enumerate() {
        let address = SocketAddr::new(ip, bound.port);
        match open(address) {
            Ok((listener, port)) => {
                if bound.listeners.is_empty() {
                    bound.address = ip;
                }
                bound.listeners.push(listener);
                bound.port = port;
            }
            // A family that this machine does not have, nobody else can listen on. One of the two there must be.
            Err(error) if is_absent(&error) && (index < last || !bound.listeners.is_empty()) => {}
            Err(error) => return Err((address, error)),
        }
    }
    Ok(bound)
}

/// Whether the machine has no such address.
fn is_absent(error: &Error) -> bool {
    let family = error.raw_os_error().map(Errno::from_raw);
    error.kind() == ErrorKind::AddrNotAvailable
        || matches!(family, Some(Errno::EAFNOSUPPORT | Errno::EPROTONOSUPPORT))
}

fn sentence(address: SocketAddr, error: &Error) -> String {
    let (ip, port) = (address.ip(), address.port());
    match error.kind() {
        ErrorKind::AddrInUse => format!(
            "port {port} of {ip} is already in use, by another `shardplan serve` or by a program that would be sent this \
             hub's token; end that one, or leave --port out to take any that is free"
        ),
        ErrorKind::PermissionDenied => {
            format!(
                "port {port} of {ip} is for the system only; give --port a number above 1023, or leave it out"
            )
        }
        _ => format!("port {port} of {ip} can't be listened on: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const V4: IpAddr = LOOPBACKS[0];
    const V6: IpAddr = LOOPBACKS[1];

    /// A machine on which these ports of these addresses are taken, and that lacks these addresses. Any free port is
    /// 1000, then 1001 and so on. What is given is what was bound.
    fn check(
        (bind, port): (IpAddr, u16),
        taken: &[(IpAddr, u16)],
        absent: &[IpAddr],
    ) -> std::result::Result<Vec<SocketAddr>, String> {
        let free = RefCell::new(1000..);
        let open = |address: SocketAddr| {
            if absent.contains(&address.ip()) {
                return Err(ErrorKind::AddrNotAvailable.into());
            }
            let port = match address.port() {
                0 => free.borrow_mut().next().expect("a port"),
                port => port,
            };
            if taken.contains(&(address.ip(), port)) {
                return Err(ErrorKind::AddrInUse.into());
            }
            Ok((SocketAddr::new(address.ip(), port), port))
        };
        let bound = listen_by(bind, port, open).map_err(|(address, error)| sentence(address, &error))?;
        assert!(bound.listeners.iter().all(|listener| listener.port() == bound.port));
        assert_eq!(bound.listeners[0].ip(), bound.address);
        Ok(bound.listeners)
    }

    fn at(ip: IpAddr, port: u16) -> SocketAddr {
        SocketAddr::new(ip, port)
    }

    #[test]
    fn both_families_have_one_port() {
        assert_eq!(check((V4, 0), &[], &[]), Ok(vec![at(V4, 1000), at(V6, 1000)]));
        assert_eq!(check((V6, 80), &[], &[]), Ok(vec![at(V6, 80), at(V4, 80)]));
        // Another has one of them: both move on.
        assert_eq!(check((V4, 0), &[(V6, 1000), (V6, 1001)], &[]), Ok(vec![at(V4, 1002), at(V6, 1002)]));
        let everyone = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        assert_eq!(check((everyone, 80), &[], &[]), Ok(vec![at(everyone, 80), at(V6, 80)]));
        let one = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
        assert_eq!(check((one, 80), &[(V6, 80)], &[]), Ok(vec![at(one, 80)]));
    }

    #[test]
    fn a_port_that_another_has_is_refused_and_named() {
        for (bind, taken) in [(V4, V4), (V4, V6), (V6, V4), (IpAddr::V4(Ipv4Addr::UNSPECIFIED), V6)] {
            let said = check((bind, 7878), &[(taken, 7878)], &[]).expect_err("refused");
            assert!(
                said.contains(&format!("port 7878 of {taken} is already in use")) && said.contains("--port"),
                "{said}"
            );
        }
        let all: Vec<(IpAddr, u16)> = (1000..2000).map(|port| (V6, port)).collect();
        assert!(check((V4, 0), &all, &[]).is_err());
    }

    #[test]
    fn a_machine_with_one_family_serves_on_that() {
        assert_eq!(check((V4, 0), &[], &[V6]), Ok(vec![at(V4, 1000)]));
        assert_eq!(check((V4, 80), &[], &[V4]), Ok(vec![at(V6, 80)]));
        assert!(check((V4, 80), &[], &[V4, V6]).expect_err("refused").contains("can't be listened on"));
        let one = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
        assert!(check((one, 80), &[], &[one]).is_err());
    }
}
