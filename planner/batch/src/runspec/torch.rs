//! Whether torch and torchvision were built for the same CUDA. torchvision refuses to be imported beside a torch for
//! another major version; minor versions may differ.

use toml::{Table, Value};

use super::document;
use planner::finding::Finding;

/// The major version of CUDA in a version's last part, such as 12 in `2.10.0+cu129`.
pub(crate) fn cuda_major(version: &str) -> Option<u64> {
    let digits = version.split_once('+')?.1.strip_prefix("cu")?;
    let digits = &digits[..digits.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(digits.len())];
    // One digit is the minor version: cu92 is 9.2, cu129 is 12.9.
    digits.get(..digits.len().checked_sub(1)?)?.parse().ok()
}

/// What is wrong with a pair of versions. `torch_cuda` is torch's own word (`torch.version.cuda`), which builds
/// without a tag need.
pub fn mismatch(torch: &str, torch_cuda: Option<&str>, torchvision: &str) -> Option<Finding> {
    let own = torch_cuda.and_then(|cuda| cuda.split('.').next()?.parse().ok());
    let (of_torch, of_vision) = (cuda_major(torch).or(own)?, cuda_major(torchvision)?);
    (of_torch != of_vision).then(|| {
        Finding::error(
            "torchvision",
            torchvision,
            format!(
                "torchvision {torchvision} is built for CUDA {of_vision} and torch {torch} for CUDA {of_torch}: importing \
                 torchvision will fail; install both from one index"
            ),
        )
        .rule("torch and torchvision must be built for one major version of CUDA")
    })
}

/// The mismatch that a `uv.lock` at `path` would install, where it holds both packages.
///
/// # Errors
/// When the file is not TOML.
pub fn locked_mismatch(path: &str, text: &str) -> Result<Option<Finding>, Box<Finding>> {
    let document = document::parse_file(path, text)?;
    let packages: Vec<&Table> = document
        .get("package")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_table)
        .collect();
    let field = |table: &Table, key: &str| table.get(key).and_then(Value::as_str).map(str::to_owned);
    let versions = |name: &str| -> Vec<String> {
        packages
            .iter()
            .filter(|table| field(table, "name").as_deref() == Some(name))
            .filter_map(|table| field(table, "version"))
            .collect()
    };
    // PyPI's torch has no tag, but its CUDA libraries are packages whose names end in the major version.
    let library = packages.iter().filter_map(|table| field(table, "name")).find_map(|name| {
        name.strip_prefix("nvidia-cuda-runtime-cu").and_then(|major| major.parse::<u64>().ok())
    });
    let (torch, vision) = (versions("torch"), versions("torchvision"));
    // A lock with several builds holds one for each platform or extra; which are installed together is uv's to say.
    let ([torch], [vision]) = (torch.as_slice(), vision.as_slice()) else { return Ok(None) };
    Ok(mismatch(torch, library.map(|major| major.to_string()).as_deref(), vision))
}
