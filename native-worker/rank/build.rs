//! Compiles the C++ shim against the headers of the libtorch that torch-sys is built against.

use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=src/sys/shim.cpp");
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    println!("cargo:rerun-if-env-changed=LIBTORCH_INCLUDE");
    println!("cargo:rerun-if-env-changed=LIBTORCH_CXX11_ABI");
    let Some(libtorch) = std::env::var_os("LIBTORCH_INCLUDE").or_else(|| std::env::var_os("LIBTORCH")) else {
        println!(
            "cargo:error=LIBTORCH is not set; point it at the `torch` folder of an installed torch 2.11.0 wheel (`cargo xtask` does)"
        );
        std::process::exit(1);
    };
    let include = PathBuf::from(&libtorch).join("include");
    // For what tests compile against it.
    println!("cargo:rustc-env=TORCH_HOME={}", PathBuf::from(&libtorch).display());
    let abi = std::env::var("LIBTORCH_CXX11_ABI").unwrap_or_else(|_| "1".to_owned());
    cc::Build::new()
        .cpp(true)
        .pic(true)
        .warnings(false)
        .std("c++17")
        .define("_GLIBCXX_USE_CXX11_ABI", abi.as_str())
        .include(&include)
        .include(include.join("torch/csrc/api/include"))
        .file("src/sys/shim.cpp")
        .compile("shardplan_shim");
}
