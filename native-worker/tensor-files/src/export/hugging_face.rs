//! A checkpoint as a Hugging Face model folder that transformers loads.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use planner::model::weights::decode::{Format, decode, encode};
use safetensors::Dtype;
use safetensors::tensor::{View, serialize_to_file};
use serde_json::{Map, Value, json};

use super::elements::{Content, Elements, Tensor, tensors_of};
use super::{Named, plan_of, source, whole_or_not};
use crate::checkpoint::{CheckpointReader, EXPERT_BIAS, WEIGHT};

/// Bytes of a file of weights at the most, where one tensor does not have more.
const FILE_BYTES: u64 = 5_000_000_000;
/// Files that are copied from the folder that training began with: without them nobody can read or write text.
const BESIDE: &[&str] = &[
    "tokenizer",
    "special_tokens_map",
    "added_tokens",
    "vocab",
    "merges",
    "generation_config",
    "chat_template",
];

/// What is written, and where.
#[derive(Debug, Clone)]
pub struct Export<'a> {
    /// The folder, which must not be there yet.
    pub to: &'a Path,
    /// Type of the weights, as safetensors names it: `BF16`, `F16`, `F32` or `F64`.
    pub dtype: &'a str,
    /// Bytes of a file at the most; none for the usual 5 GB.
    pub file_bytes: Option<u64>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// Tensors.
    pub tensors: u64,
    /// Bytes of weights.
    pub bytes: u64,
    /// Files of weights.
    pub files: u64,
}

/// Writes the weights of a checkpoint.
///
/// # Errors
/// When the folder is there, the model's tensors are not mapped, the checkpoint lacks something, or the disk refuses.
pub fn export(reader: CheckpointReader, wanted: &Export<'_>) -> anyhow::Result<Exported> {
    let dtype = [Dtype::BF16, Dtype::F16, Dtype::F32, Dtype::F64]
        .into_iter()
        .find(|dtype| format!("{dtype:?}") == wanted.dtype)
        .with_context(|| format!("weights are written as BF16, F16, F32 or F64, not {}", wanted.dtype))?;
    let format = Format::of(wanted.dtype).context("a type of floats")?;
    let plan = plan_of(&reader.index)?;
    let Named { config, map } = Named::of(&plan)?;
    let mut tensors = tensors_of(&map);
    tensors.extend(map.router_biases.iter().map(|(router, name)| Tensor {
        name: name.clone(),
        shape: vec![plan.model.moe.as_ref().map_or(0, |moe| moe.experts)],
        content: Content::Parameter(router.clone()),
    }));
    whole_or_not(wanted.to, |folder| {
        let elements = Elements { reader, parameters: &map.parameters };
        let writer = Writer { elements: RefCell::new(elements), format, failed: RefCell::new(None) };
        let most = wanted.file_bytes.unwrap_or(FILE_BYTES);
        let exported = writer.files(folder, &tensors, dtype, most)?;
        write_config(folder, config, wanted.dtype)?;
        if let Some(source) = source(&plan) {
            copy_beside(source, folder)?;
        }
        Ok(exported)
    })
}

struct Writer<'a> {
    elements: RefCell<Elements<'a>>,
    format: Format,
    /// What went wrong while a file was written, whose writer knows no errors.
    failed: RefCell<Option<anyhow::Error>>,
}

/// A tensor that is made when it is written.
struct Made<'a, 'b> {
    writer: &'a Writer<'b>,
    tensor: &'a Tensor,
    shape: Vec<usize>,
    dtype: Dtype,
}

impl View for Made<'_, '_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let bytes = self.writer.bytes(self.tensor).unwrap_or_else(|error| {
            self.writer.failed.borrow_mut().get_or_insert(error);
            vec![0; self.data_len()]
        });
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.writer.format.bytes() as usize
    }
}

impl Writer<'_> {
    /// Writes all tensors into files of this size, and the index where there are several.
    fn files(&self, folder: &Path, tensors: &[Tensor], dtype: Dtype, most: u64) -> anyhow::Result<Exported> {
        let shape = |tensor: &Tensor| tensor.shape.iter().map(|&extent| extent as usize).collect();
        let made = |tensor| Made { writer: self, tensor, shape: shape(tensor), dtype };
        let made: Vec<Made<'_, '_>> = tensors.iter().map(made).collect();
        let mut groups: Vec<Vec<&Made<'_, '_>>> = vec![Vec::new()];
        let (mut room, mut total) = (most, 0);
        for one in &made {
            let bytes = one.data_len() as u64;
            let last = groups.len() - 1;
            if bytes > room && !groups[last].is_empty() {
                groups.push(Vec::new());
                room = most;
            }
            room = room.saturating_sub(bytes);
            total += bytes;
            let last = groups.len() - 1;
            groups[last].push(one);
        }
        let mut index = Map::new();
        for (number, group) in groups.iter().enumerate() {
            let name = match groups.len() {
                1 => "model.safetensors".to_owned(),
                count => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
            };
            let path = folder.join(&name);
            let about = std::collections::HashMap::from([("format".to_owned(), "pt".to_owned())]);
            let views = group.iter().map(|made| (made.tensor.name.as_str(), Shared(made)));
            serialize_to_file(views, Some(about), &path)
                .map_err(crate::said_once)
                .with_context(|| format!("writing {}", path.display()))?;
            if let Some(error) = self.failed.borrow_mut().take() {
                return Err(error);
            }
            open_to_all(&path)?;
            File::open(&path)?.sync_all()?;
            index.extend(group.iter().map(|made| (made.tensor.name.clone(), json!(name))));
        }
        if groups.len() > 1 {
            let index = json!({"metadata": {"total_size": total}, "weight_map": index});
            write(&folder.join("model.safetensors.index.json"), &index)?;
        }
        Ok(Exported { tensors: tensors.len() as u64, bytes: total, files: groups.len() as u64 })
    }

    /// A whole tensor.
    fn bytes(&self, tensor: &Tensor) -> anyhow::Result<Vec<u8>> {
        let kind = match tensor.content {
            Content::Mapped(_) => WEIGHT,
            Content::Parameter(_) => EXPERT_BIAS,
        };
        let mut elements = self.elements.borrow_mut();
        let kept = elements.dtype(kind, tensor);
        let kept = kept.with_context(|| format!("the checkpoint has no {kind} of {}", tensor.name))?;
        let from = Format::of(&format!("{kept:?}")).context("a type that is no float")?;
        let count: u64 = tensor.shape.iter().product();
        let bytes = elements.read(kind, tensor, 0..count)?;
        if from == self.format {
            return Ok(bytes);
        }
        let mut values = vec![0.0; usize::try_from(count)?];
        let mut out = vec![0; values.len() * usize::try_from(self.format.bytes())?];
        decode(from, &bytes, 0, 1, &mut values).context("bytes are too few")?;
        encode(self.format, &values, 0, 1, &mut out).context("bytes are too few")?;
        Ok(out)
    }
}

/// A view of one that is elsewhere.
struct Shared<'a, 'b>(&'a Made<'a, 'b>);

impl View for Shared<'_, '_> {
    fn dtype(&self) -> Dtype {
        self.0.dtype()
    }

    fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.0.data()
    }

    fn data_len(&self) -> usize {
        self.0.data_len()
    }
}

/// What the writer made for its owner alone is an ordinary file here, as the process makes its files.
fn open_to_all(path: &PathBuf) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let probe = path.with_extension("mode");
    let mode = File::create(&probe)?.metadata()?.permissions().mode();
    std::fs::remove_file(&probe)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & 0o777))?;
    Ok(())
}

fn write(path: &Path, value: &Value) -> anyhow::Result<()> {
    let mut file = File::create(path).with_context(|| format!("writing {}", path.display()))?;
    file.write_all((serde_json::to_string_pretty(value)? + "\n").as_bytes())?;
    file.sync_all()?;
    Ok(())
}

/// The model's config.json, whose weights are of this type and no longer quantised.
fn write_config(folder: &Path, mut config: Map<String, Value>, dtype: &str) -> anyhow::Result<()> {
    let name = match dtype {
        "BF16" => "bfloat16",
        "F16" => "float16",
        "F64" => "float64",
        _ => "float32",
    };
    config.remove("quantization_config");
    let key = if config.contains_key("dtype") { "dtype" } else { "torch_dtype" };
    config.insert(key.to_owned(), json!(name));
    write(&folder.join("config.json"), &Value::Object(config))
}

/// Copies what reads and writes text.
fn copy_beside(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(from).with_context(|| format!("reading {}", from.display()))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let wanted = BESIDE.iter().any(|stem| name.starts_with(stem)) || name.ends_with(".jinja");
        if wanted && entry.path().is_file() {
            std::fs::copy(entry.path(), to.join(&name)).with_context(|| format!("copying {name}"))?;
        }
    }
    Ok(())
}
