//! What we take from others: licences, sources, versions, held against `deny.toml`.
//!
//! The file is cargo-deny's, who has it can run it. Compiling that program takes minutes, so the same checks are made here
//! of what cargo says of the packages.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use spdx::{Expression, ParseMode};

/// The part of cargo-deny's configuration that we use.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Rules {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Graph {
    /// Triples that we build for.
    targets: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Licenses {
    allow: Vec<String>,
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Bans {
    multiple_versions: Deny,
    wildcards: Deny,
    allow_wildcard_paths: bool,
    deny: Vec<Named>,
    skip: Vec<Named>,
}

/// `name` or `name@version`, and why.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Sources {
    unknown_registry: Deny,
    unknown_git: Deny,
    allow_registry: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Deny {
    Deny,
}

/// What `cargo metadata` says.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    dependencies: Vec<Dependency>,
    #[serde(default)]
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// What our sources call it, where that is another name.
    #[serde(default)]
    rename: Option<String>,
    req: String,
    path: Option<String>,
}

#[test]
fn everything_is_by_the_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = std::fs::read_to_string(root.join("deny.toml")).unwrap();
    let rules: Rules = toml::from_str(&text).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--locked", "--format-version", "1"]).current_dir(&root);
    for target in &rules.graph.targets {
        cargo.args(["--filter-platform", target]);
    }
    let said = cargo.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let metadata: Metadata = serde_json::from_slice(&said.stdout).unwrap();
    assert!(metadata.packages.len() > 100);
    let mut faults = faults(&rules, &metadata.packages);
    for package in metadata.packages.iter().filter(|package| package.source.is_none()) {
        let text = sources(package.manifest_path.parent().unwrap());
        faults.extend(unused(package, &text));
    }
    assert!(faults.is_empty(), "{} faults by deny.toml:\n  {}", faults.len(), faults.join("\n  "));
}

/// The text of a crate's sources, and of those that it has from elsewhere by their path. A crate in a folder of it has its own.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.join("Cargo.toml").exists() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let own = std::fs::read_to_string(&path).unwrap();
                let elsewhere = own.lines().filter_map(|line| line.trim().strip_prefix("#[path = \"../"));
                for named in elsewhere.filter_map(|rest| rest.strip_suffix("\"]")) {
                    let path = folder.join("..").join(named);
                    text +=
                        &std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
                }
                text += &own;
            }
        }
    }
    text
}

/// Dependencies of a package that its sources don't name.
fn unused(package: &Package, sources: &str) -> Vec<String> {
    let words: BTreeSet<&str> =
        sources.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_').collect();
    let called = |one: &Dependency| one.rename.as_ref().unwrap_or(&one.name).replace('-', "_");
    let idle = package.dependencies.iter().filter(|one| !words.contains(called(one).as_str()));
    idle.map(|one| format!("{} takes {} and names it nowhere", package.name, one.name)).collect()
}

fn faults(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let Sources { unknown_registry: Deny::Deny, unknown_git: Deny::Deny, allow_registry } = &rules.sources;
    let Bans { multiple_versions: Deny::Deny, wildcards: Deny::Deny, allow_wildcard_paths, deny, skip } =
        &rules.bans;
    let mut faults = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        let Package { name, version, license, source, dependencies, .. } = package;
        let Some(source) = source else {
            let loose = |one: &&Dependency| one.req == "*" && !(*allow_wildcard_paths && one.path.is_some());
            faults.extend(
                dependencies.iter().filter(loose).map(|one| format!("{name} takes any {}", one.name)),
            );
            continue;
        };
        versions.entry(name).or_default().insert(version);
        if !allow_registry.iter().any(|allowed| source.strip_prefix("registry+") == Some(allowed)) {
            faults.push(format!("{name} {version} comes from {source}"));
        }
        if let Some(banned) = deny.iter().find(|banned| banned.name == *name) {
            faults.push(format!("{name} {version} is banned: {}", banned.reason));
        }
        let own = rules.licenses.exceptions.iter().filter(|one| one.name == *name).flat_map(|one| &one.allow);
        let allowed: Vec<&String> = own.chain(&rules.licenses.allow).collect();
        if !license.as_deref().is_some_and(|license| is_allowed(license, &allowed)) {
            faults
                .push(format!("{name} {version} has the licence {}", license.as_deref().unwrap_or("(none)")));
        }
    }
    // The newest may be there; what is there beside it must be named.
    let skipped: BTreeSet<&str> = skip.iter().map(|one| one.name.as_str()).collect();
    let mut needless = skipped.clone();
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let named = |version: &&&str| skipped.contains(format!("{name}@{version}").as_str());
        let left: Vec<&&str> = versions.iter().filter(|version| !named(version)).collect();
        if left.len() > 1 {
            faults.push(format!("{name} is compiled in several versions: {left:?}"));
        }
        needless.retain(|skip| !versions.iter().any(|version| format!("{name}@{version}") == *skip));
    }
    faults.extend(needless.into_iter().map(|name| format!("[bans] skip: {name} is not there twice")));
    for named in skip.iter().chain(deny).filter(|named| named.reason.is_empty()) {
        faults.push(format!("[bans]: {} has no reason", named.name));
    }
    faults
}

fn is_allowed(license: &str, allowed: &[&String]) -> bool {
    let is_known = |name: &str| allowed.iter().any(|allowed| *allowed == name);
    Expression::parse_mode(license, ParseMode::LAX)
        .is_ok_and(|license| license.evaluate(|one| one.license.id().is_some_and(|id| is_known(id.name))))
}

const RULES: &str = r#"
    graph.targets = []
    licenses = { allow = ["MIT", "Apache-2.0"], exceptions = [{ crate = "tool", allow = ["MPL-2.0"] }] }
    sources = { unknown-registry = "deny", unknown-git = "deny", allow-registry = ["https://index"] }
    [bans]
    multiple-versions = "deny"
    wildcards = "deny"
    allow-wildcard-paths = true
    deny = [{ crate = "openssl", reason = "asks for the system's" }]
    skip = [{ crate = "old@1.0.0", reason = "others want it" }]
"#;

#[track_caller]
fn check(packages: &str, expected: &[&str]) {
    let rules: Rules = toml::from_str(RULES).unwrap();
    let mut packages: Vec<Package> = serde_json::from_str(packages).unwrap();
    for version in ["1.0.0", "2.0.0"] {
        packages.push(package("old", version, "MIT"));
    }
    let found = faults(&rules, &packages);
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{found}");
    }
}

fn package(name: &str, version: &str, license: &str) -> Package {
    let source = Some("registry+https://index".to_owned());
    let (name, version, license) = (name.to_owned(), version.to_owned(), Some(license.to_owned()));
    Package { name, version, license, source, dependencies: Vec::new(), manifest_path: PathBuf::new() }
}

fn text(name: &str, version: &str, license: &str, source: &str) -> String {
    serde_json::json!({ "name": name, "version": version, "license": license, "source": source, "dependencies": [] })
        .to_string()
}

#[test]
fn what_is_against_the_rules_is_named() {
    let ours = "registry+https://index";
    check("[]", &[]);
    for (name, license, source, expected) in [
        ("a", "MIT/Apache-2.0", ours, &[][..]),
        ("a", "GPL-3.0-only OR MIT", ours, &[]),
        ("a", "MIT AND GPL-3.0-only", ours, &["a 1.0.0 has the licence MIT AND GPL-3.0-only"]),
        ("tool", "MPL-2.0", ours, &[]),
        ("other", "MPL-2.0", ours, &["other 1.0.0 has the licence MPL-2.0"]),
        ("a", "MIT", "git+https://index", &["comes from git+https://index"]),
        ("a", "MIT", "registry+https://elsewhere", &["comes from registry+https://elsewhere"]),
        ("openssl", "MIT", ours, &["is banned: asks for the system's"]),
    ] {
        check(&format!("[{}]", text(name, "1.0.0", license, source)), expected);
    }
    let twice = [text("a", "1.0.0", "MIT", ours), text("a", "1.1.0", "MIT", ours)].join(",");
    check(&format!("[{twice}]"), &["a is compiled in several versions"]);
    let loose = r#"[{"name": "own", "version": "0.1.0", "license": null, "source": null, "dependencies":
        [{"name": "b", "req": "*", "path": null}, {"name": "c", "req": "*", "path": "/c"}]}]"#;
    check(loose, &["own takes any b"]);
}

#[test]
fn a_dependency_that_nothing_names_is_a_fault() {
    let package: Package = serde_json::from_str(
        r#"{"name": "own", "version": "0.1.0", "license": null, "source": null, "dependencies":
        [{"name": "a-b", "req": "1"}, {"name": "c", "req": "1"}, {"name": "d", "rename": "e", "req": "1"}]}"#,
    )
    .unwrap();
    assert_eq!(unused(&package, "use a_b::X; fn abc() { e::f() }"), ["own takes c and names it nowhere"]);
}

#[test]
fn an_exception_that_nothing_needs_is_a_fault() {
    let rules: Rules = toml::from_str(RULES).unwrap();
    assert_eq!(faults(&rules, &[]), ["[bans] skip: old@1.0.0 is not there twice"]);
}
