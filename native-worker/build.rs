//! Has cargo rebuild the program when the page was built anew, where its files are embedded from `../dist` (feature `page`).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_PAGE").is_none() {
        return;
    }
    // A folder that is not there would make cargo rebuild every time. It is the page's (ignored) build output.
    if let Err(error) = std::fs::create_dir_all("../dist") {
        println!(
            "cargo:warning=the folder dist can't be made, so a page built later is not noticed: {error}"
        );
    }
    println!("cargo:rerun-if-changed=../dist");
}
