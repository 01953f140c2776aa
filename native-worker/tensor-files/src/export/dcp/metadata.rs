//! `.metadata`: which tensors there are, and where their parts are. The classes are those of `torch.distributed.checkpoint`'s
//! `metadata.py` and `filesystem.py`.

use super::archive::Type;
use super::pickle::Pickle;

const METADATA: &str = "torch.distributed.checkpoint.metadata";
const FILES: &str = "torch.distributed.checkpoint.filesystem";
/// What torch says of the format itself.
const VERSION: &str = "1.0.0";

/// A tensor that was written.
#[derive(Debug, Clone)]
pub(super) struct Item {
    /// Keys by which it is found in a training's state, from the outermost.
    pub path: Vec<String>,
    pub dtype: Type,
    pub shape: Vec<u64>,
    pub parts: Vec<Part>,
}

/// A box of it.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub offsets: Vec<u64>,
    pub sizes: Vec<u64>,
    /// Its file, the first byte there, and how many there are.
    pub file: String,
    pub at: u64,
    pub length: u64,
}

/// The whole file.
pub(super) fn pickled(items: &[Item]) -> Vec<u8> {
    let mut pickle = Pickle::new();
    pickle.object(METADATA, "Metadata", |pickle| {
        pickle.text("state_dict_metadata").dictionary(|pickle| {
            for item in items {
                pickle.text(&item.path.join("."));
                tensor(pickle, item);
            }
        });
        // By this a nested state is made of flat names again.
        pickle.text("planner_data").dictionary(|pickle| {
            for item in items {
                pickle.text(&item.path.join(".")).tuple(|pickle| {
                    for name in &item.path {
                        pickle.text(name);
                    }
                });
            }
        });
        pickle.text("storage_data").dictionary(|pickle| {
            for item in items {
                for (number, part) in item.parts.iter().enumerate() {
                    place(pickle, &item.path.join("."), number as u64, part);
                }
            }
        });
        pickle.text("storage_meta").nothing();
        pickle.text("version").text(VERSION);
    });
    pickle.finish()
}

fn tensor(pickle: &mut Pickle, item: &Item) {
    pickle.object(METADATA, "TensorStorageMetadata", |pickle| {
        pickle.text("properties").begun(METADATA, "TensorProperties").tuple(|pickle| {
            pickle.global("torch", item.dtype.name());
            pickle.global("torch.serialization", "_get_layout");
            pickle.tuple(|pickle| _ = pickle.text("torch.strided")).call();
            // No gradient; contiguous; not pinned.
            pickle.no().global(METADATA, "_MEM_FORMAT_ENCODING").numbers(&[0]).call().no();
        });
        pickle.state();
        size(pickle.text("size"), &item.shape);
        pickle.text("chunks").list(|pickle| {
            for part in &item.parts {
                pickle.object(METADATA, "ChunkStorageMetadata", |pickle| {
                    size(pickle.text("offsets"), &part.offsets);
                    size(pickle.text("sizes"), &part.sizes);
                });
            }
        });
    });
}

fn place(pickle: &mut Pickle, name: &str, number: u64, part: &Part) {
    pickle.object(METADATA, "MetadataIndex", |pickle| {
        pickle.text("fqn").text(name).text("index").number(number);
        size(pickle.text("offset"), &part.offsets);
    });
    pickle.object(FILES, "_StorageInfo", |pickle| {
        pickle.text("relative_path").text(&part.file);
        pickle.text("offset").number(part.at).text("length").number(part.length);
    });
}

/// A `torch.Size`.
fn size(pickle: &mut Pickle, extents: &[u64]) {
    pickle.global("torch", "Size").tuple(|pickle| _ = pickle.numbers(extents)).call();
}
