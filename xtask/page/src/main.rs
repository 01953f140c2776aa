//! `page-builder`: makes the page of compiled modules, as `trunk build` does from the same `index.html`.
//!
//! Trunk and wasm-bindgen's program take longer to compile than all that the page needs of them: JavaScript around each
//! module, a style sheet, and links to both in `index.html`. wasm-bindgen's own library makes the JavaScript; its version
//! is that of the lock file, so it fits the modules.

mod alike;
mod comments;
mod compress;
mod index;
mod names;
mod order;
mod size;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use wasm_bindgen_cli_support::Bindgen;

use index::{Index, Link};

const USAGE: &str = "usage: page-builder make ROOT MODULES PAGE [PROFILE]
       page-builder check ROOT PAGE [PROFILE]
make     makes a page, and prints what its files weigh
check    prints it again, and fails where that is more than web/size.toml allows
ROOT     the checkout, with index.html
MODULES  cargo's folder of what is built for wasm32-unknown-unknown
PAGE     the folder of the page; what was there before is replaced when all is made
PROFILE  the profile that all modules were built by; without it each has the one that index.html names";

/// What the page is called in `web/size.toml` when each of its modules has the profile that `index.html` names.
const FULL: &str = "web-release";

/// How modules are made here; another word whenever the same compiled module would become another one, so that no browser puts a module
/// that it kept beside the JavaScript of another.
const WAY: &str = "short names";

fn main() -> ExitCode {
    match run(std::env::args_os().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "a program's own error")]
            {
                eprintln!("error: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Vec<OsString>) -> Result<()> {
    let Some((what, arguments)) = arguments.split_first() else { bail!("{USAGE}") };
    let makes = what == "make";
    ensure!(makes || what == "check", "{USAGE}");
    let (places, rest) = arguments.split_at_checked(if makes { 3 } else { 2 }).context(USAGE)?;
    let profile = match rest {
        [] => None,
        [profile] => Some(profile.to_str().context("the profile's name is not UTF-8")?),
        _ => bail!("{USAGE}"),
    };
    let places: Vec<&Path> = places.iter().map(Path::new).collect();
    let (root, page) = match places[..] {
        [root, modules, page] => {
            build(root, modules, page, profile)?;
            (root, page)
        }
        [root, page] => (root, page),
        _ => bail!("{USAGE}"),
    };
    let within = size::check(root, page, profile.unwrap_or(FULL))?;
    match within {
        // Who builds the page to use it can't help its size.
        Err(over) if makes => notice(&format!("note: {over}")),
        Err(over) => bail!(over),
        Ok(()) => {}
    }
    Ok(())
}

/// A line for who builds.
fn notice(text: &str) {
    #[expect(clippy::print_stderr, reason = "for who builds")]
    {
        eprintln!("{text}");
    }
}

/// Makes the page in a folder beside `output`, and puts it there when it is whole.
fn build(root: &Path, modules: &Path, output: &Path, profile: Option<&str>) -> Result<()> {
    let path = root.join("index.html");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let index = Index::parse(&text).with_context(|| format!("of {}", path.display()))?;
    // Of one name, so that what was left by a build that was killed goes with the next.
    let fresh = output.with_extension("new");
    let made = remove(&fresh)
        .and_then(|()| fill(root, modules, &fresh, profile, &index))
        .and_then(|()| remove(output))
        .and_then(|()| Ok(std::fs::rename(&fresh, output)?));
    if made.is_err() {
        // The first error is the one to tell.
        let _ = std::fs::remove_dir_all(&fresh);
    }
    made.with_context(|| format!("making the page in {}", output.display()))
}

/// Removes a folder that may not be there.
fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn fill(root: &Path, modules: &Path, output: &Path, profile: Option<&str>, index: &Index) -> Result<()> {
    std::fs::create_dir_all(output)?;
    let mut links = Vec::new();
    for link in &index.links {
        links.push(match link {
            Link::Style { file } => {
                let bytes = read(&root.join(file))?;
                let stem = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
                let name = format!("{stem}-{}.css", hash(&bytes));
                let text = String::from_utf8(bytes).with_context(|| format!("{file} is not UTF-8"))?;
                std::fs::write(output.join(&name), comments::without(&text))?;
                format!("<link rel=\"stylesheet\" href=\"/{name}\" />")
            }
            Link::Module { program, profile: own, worker } => {
                let module = module(modules, profile.unwrap_or(own), program);
                let bytes = read(&module)?;
                // What a page starts itself it finds by its name.
                let name = if *worker { program.clone() } else { format!("{program}-{}", hash(&bytes)) };
                bind(&module, bytes, &name, output)?;
                if *worker { String::new() } else { start(&name) }
            }
        });
    }
    std::fs::write(output.join("index.html"), index.with(&links))?;
    // Only the page that is given to others: the hub compresses one that is to be there soon as it is asked for.
    if profile.is_none() { compress::all(output) } else { Ok(()) }
}

/// The path of a compiled module.
fn module(modules: &Path, profile: &str, program: &str) -> PathBuf {
    // The folder of cargo's own profile for development has another name.
    let folder = if profile == "dev" { "debug" } else { profile };
    modules.join(folder).join(format!("{program}.wasm"))
}

/// Writes a module and the JavaScript around it.
fn bind(path: &Path, bytes: Vec<u8>, name: &str, output: &Path) -> Result<()> {
    ensure!(bytes.starts_with(b"\0asm"), "{} is no WebAssembly module", path.display());
    let mut bindgen = Bindgen::new();
    bindgen.input_bytes(name, bytes).web(true)?.typescript(false).out_name(name);
    // What is started by its JavaScript alone finds the module beside it, as with wasm-bindgen's program.
    bindgen.omit_default_module_path(false);
    bindgen.generate(output).with_context(|| format!("binding {}", path.display()))?;
    let bound = output.join(format!("{name}_bg.wasm"));
    let script = output.join(format!("{name}.js"));
    let text =
        std::fs::read_to_string(&script).with_context(|| format!("cannot read {}", script.display()))?;
    let (module, text) = names::short(&read(&bound)?, &comments::without(&text))
        .with_context(|| format!("of {}", path.display()))?;
    let ordered = order::ordered(&module).with_context(|| format!("of {}", path.display()))?;
    std::fs::write(bound, ordered)?;
    Ok(std::fs::write(script, text)?)
}

/// The tags that load a module and start it.
fn start(name: &str) -> String {
    format!(
        "<link rel=\"modulepreload\" href=\"/{name}.js\" crossorigin=\"anonymous\" />\n    \
         <link rel=\"preload\" href=\"/{name}_bg.wasm\" crossorigin=\"anonymous\" as=\"fetch\" type=\"application/wasm\" />\n    \
         <script type=\"module\">\n      import init from '/{name}.js';\n      \
         await init({{ module_or_path: '/{name}_bg.wasm' }});\n    </script>"
    )
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Sixteen digits that change when the bytes do, or what is made of them, by which the hub tells browsers to keep a file for good.
fn hash(bytes: &[u8]) -> String {
    hex::encode(&Sha256::new().chain_update(WAY).chain_update(bytes).finalize()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = "<head>\n    <base data-trunk-public-url />\n    \
        <link data-trunk rel=\"css\" href=\"style/page.css\" />\n    \
        <link data-trunk rel=\"rust\" data-bin=\"page\" data-cargo-profile=\"small\" />\n    \
        <link data-trunk rel=\"rust\" data-bin=\"helper\" data-type=\"worker\" data-cargo-profile=\"small\" />\n</head>\n";
    /// A module without anything.
    const MODULE: &[u8] = b"\0asm\x01\0\0\0";

    fn checkout() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("style")).unwrap();
        std::fs::write(root.path().join("style/page.css"), "body {}").unwrap();
        std::fs::write(root.path().join("index.html"), INDEX).unwrap();
        for profile in ["small", "quick"] {
            let folder = root.path().join("modules").join(profile);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("page.wasm"), MODULE).unwrap();
            std::fs::write(folder.join("helper.wasm"), MODULE).unwrap();
        }
        root
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_page_is_made_whole_and_replaces_the_last() {
        let root = checkout();
        let (modules, output) = (root.path().join("modules"), root.path().join("dist"));
        std::fs::create_dir_all(&output).unwrap();
        std::fs::write(output.join("old.js"), "").unwrap();
        for profile in [None, Some("quick")] {
            build(root.path(), &modules, &output, profile).unwrap();
            let (css, page) = (hash(b"body {}"), hash(MODULE));
            let expected = [
                "helper.js".to_owned(),
                "helper_bg.wasm".to_owned(),
                "index.html".to_owned(),
                format!("page-{css}.css"),
                format!("page-{page}.js"),
                format!("page-{page}_bg.wasm"),
            ];
            let mut expected = expected.to_vec();
            expected.sort();
            let (compressed, plain): (Vec<_>, Vec<_>) =
                names(&output).into_iter().partition(|name| name.ends_with(compress::SUFFIX));
            assert_eq!(plain, expected);
            // The page that is given to others alone is compressed before.
            assert_eq!(
                compressed.contains(&format!("page-{page}.js.gz")),
                profile.is_none(),
                "{compressed:?}"
            );
            assert_eq!(compressed.is_empty(), profile.is_some());
            let index = std::fs::read_to_string(output.join("index.html")).unwrap();
            assert!(!index.contains("data-trunk"), "{index}");
            assert!(index.contains(&format!("import init from '/page-{page}.js';")), "{index}");
        }
    }

    #[test]
    fn what_is_missing_is_named_and_the_last_page_stays() {
        let root = checkout();
        let (modules, output) = (root.path().join("modules"), root.path().join("dist"));
        std::fs::create_dir_all(&output).unwrap();
        std::fs::write(output.join("old.js"), "").unwrap();
        std::fs::create_dir_all(root.path().join("dist.new/left")).unwrap();
        std::fs::write(modules.join("small/helper.wasm"), "text").unwrap();
        let error = format!("{:#}", build(root.path(), &modules, &output, None).unwrap_err());
        assert!(error.contains("helper.wasm is no WebAssembly module"), "{error}");
        let error = format!("{:#}", build(root.path(), &modules, &output, Some("none")).unwrap_err());
        assert!(error.contains("none/page.wasm"), "{error}");
        assert_eq!(names(&output), ["old.js"]);
        assert_eq!(names(root.path()), ["dist", "index.html", "modules", "style"]);
    }
}
