//! The programs that a run needs: looked for when the first run wants them, and known to all after it.

use std::cell::OnceCell;
use std::path::PathBuf;

use crate::probe::{self, RankBinary, Torch};
use crate::report::Failure;

/// Where torch and the rank binary are. Both are started to ask for their versions, which one of many short runs need not do again.
#[derive(Debug)]
pub struct Programs {
    rank_binary: Option<PathBuf>,
    torch_python: Option<PathBuf>,
    torch_lib: Option<PathBuf>,
    found: OnceCell<(Torch, RankBinary)>,
}

impl Programs {
    /// Those that are named, or else the best that there are.
    pub fn new(rank_binary: Option<PathBuf>, torch_python: Option<PathBuf>) -> Programs {
        Programs { rank_binary, torch_python, torch_lib: None, found: OnceCell::new() }
    }

    /// With the libraries of torch in this folder, whatever Pythons there are.
    pub fn with_libraries(self, torch_lib: Option<PathBuf>) -> Programs {
        Programs { torch_lib, ..self }
    }

    /// The programs.
    ///
    /// # Errors
    /// When one of them is missing or does not fit: a sentence with the way out.
    pub(super) fn find(&self) -> anyhow::Result<&(Torch, RankBinary)> {
        if let Some(found) = self.found.get() {
            return Ok(found);
        }
        let torch = match &self.torch_lib {
            Some(lib) => probe::torch_of(lib),
            None => probe::find_torch(self.torch_python.as_deref()),
        };
        let torch = torch.map_err(Failure::environment)?;
        let rank =
            probe::find_rank(self.rank_binary.as_deref(), Some(&torch)).map_err(Failure::environment)?;
        Ok(self.found.get_or_init(|| (torch, rank)))
    }
}
