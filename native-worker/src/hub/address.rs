//! How the hub's address is told. Whoever has the token can run plans, and what a job prints is read by many: so the
//! token is printed on a terminal alone, and elsewhere lies in a file that its owner alone can read.

use std::io::IsTerminal;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::probe::cache_folder;
use crate::process::host_name;
use crate::report::Failure;

/// The hub's address.
pub struct Address {
    /// What a browser opens first, with the token in its fragment.
    with_token: String,
    without: String,
    port: u16,
    file: Option<AddressFile>,
}

/// A file with the address in it, there as long as the hub is.
struct AddressFile(PathBuf);

impl Drop for AddressFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Address {
    /// The address of a hub at `ip`; written to a file of its runs' folder where standard output is read by others.
    ///
    /// # Errors
    /// When that file can't be written.
    pub fn new(ip: IpAddr, port: u16, token: &str, runs: &Path) -> anyhow::Result<Address> {
        let seen_by_one = std::io::stdout().is_terminal() && std::env::var_os("SLURM_JOB_ID").is_none();
        let without = url(ip, port);
        let with_token = format!("{without}#token={token}");
        let file = if seen_by_one { None } else { Some(write(runs, port, &with_token)?) };
        Ok(Address { with_token, without, port, file })
    }

    /// For people.
    pub fn text(&self) -> String {
        match &self.file {
            None => format!("{}\n", self.with_token),
            Some(AddressFile(path)) => format!(
                "{} (open the address in {}: it has the token, which is not printed where others may read it)\n",
                self.without,
                path.display()
            ),
        }
    }

    /// For scripts.
    pub fn json(&self) -> String {
        let url = if self.file.is_some() { &self.without } else { &self.with_token };
        let file = self.file.as_ref().map(|AddressFile(path)| path);
        serde_json::json!({"url": url, "port": self.port, "url_file": file}).to_string() + "\n"
    }
}

/// Among the runs, where those see it who look at them from another machine (a name with a dot in front is no run's);
/// where others may write there, and so put a file of theirs in its place, among what is kept at home.
fn write(runs: &Path, port: u16, address: &str) -> anyhow::Result<AddressFile> {
    let at_home = || {
        let folder = cache_folder().unwrap_or_else(|| runs.to_owned());
        std::fs::create_dir_all(&folder).map(|()| folder)
    };
    let folder = if run_folder::check_private(runs).is_ok() { Ok(runs.to_owned()) } else { at_home() };
    let written = folder.and_then(|folder| {
        let path = folder.join(format!(".hub-{}-{port}.url", host_name()));
        run_folder::replace(&path, &format!("{address}\n")).map(|()| AddressFile(path))
    });
    written.map_err(|error| {
        Failure::environment(format!(
            "the file that the hub's token is put into can't be written ({error}); start the hub on a terminal, or give \
             --runs a folder of yours"
        ))
    })
}

fn url(ip: IpAddr, port: u16) -> String {
    let host = match ip {
        _ if ip.is_unspecified() => host_name(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    format!("http://{host}:{port}/")
}
