//! Has cargo rebuild the hub when the web app was built anew: its files are embedded from `../dist`.

fn main() {
    // A folder that is not there would make cargo rebuild every time. It is the web app's (ignored) build output.
    if let Err(error) = std::fs::create_dir_all("../dist") {
        println!(
            "cargo:warning=the folder dist can't be made, so a web app built later is not noticed: {error}"
        );
    }
    println!("cargo:rerun-if-changed=../dist");
    println!("cargo:rerun-if-changed=build.rs");
}
