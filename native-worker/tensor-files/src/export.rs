//! A checkpoint as a Hugging Face model folder that transformers loads.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use planner::Plan;
use planner::model::presets;
use planner::model::weights::decode::{Format, decode, encode};
use planner::model::weights::map::{Mapped, WeightMap, hf_tensors, runs};
use planner::shard::Piece;
use planner::wire::ModelFile;
use safetensors::Dtype;
use safetensors::tensor::{View, serialize_to_file};
use serde_json::{Map, Value, json};

use crate::checkpoint::CheckpointReader;
use crate::folder::config_of;

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

/// A tensor to write: which parameters have elements of it.
struct Tensor {
    name: String,
    shape: Vec<usize>,
    /// Parameters by their places in the map.
    from: Vec<usize>,
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
    ensure!(!wanted.to.exists(), "{} is there already; name another folder", wanted.to.display());
    let plan = Plan::resolve(&reader.index.plan)
        .plan
        .context("the checkpoint's plan can't be read by this version")?;
    let source = plan.run.weights.as_deref().map(Path::new);
    let config = config(&plan, source)?;
    let map = hf_tensors(&plan.model, &config, None).map_err(|finding| anyhow!(finding.message.clone()))?;
    let mut tensors = tensors(&map)?;
    tensors.extend(map.router_biases.iter().map(|(_, name)| Tensor {
        name: name.clone(),
        shape: vec![plan.model.moe.as_ref().map_or(0, |moe| moe.experts as usize)],
        from: Vec::new(),
    }));
    let parent = match wanted.to.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    // Whole or not at all.
    let staged = tempfile::Builder::new()
        .prefix(".export-")
        .tempdir_in(parent)
        .with_context(|| format!("writing beside {}", wanted.to.display()))?;
    let writer = Writer { reader: RefCell::new(reader), map: &map, format, failed: RefCell::new(None) };
    let exported = writer.files(staged.path(), &tensors, dtype, wanted.file_bytes.unwrap_or(FILE_BYTES))?;
    write_config(staged.path(), config, wanted.dtype)?;
    if let Some(source) = source {
        copy_beside(source, staged.path())?;
    }
    File::open(staged.path())?.sync_all()?;
    std::fs::rename(staged.path(), wanted.to).with_context(|| format!("naming {}", wanted.to.display()))?;
    std::mem::forget(staged);
    Ok(exported)
}

/// The config.json of the plan's model.
fn config(plan: &Plan, source: Option<&Path>) -> anyhow::Result<Map<String, Value>> {
    if let Some(source) = source
        && let Ok(config) = config_of(source)
    {
        return Ok(config);
    }
    let file: &ModelFile = &plan.file.model;
    ensure!(
        file.num_layers.is_none(),
        "the plan gives the model another number of layers than its config.json says; train it by a config.json of its own"
    );
    let of_preset = || {
        let id = file.preset.as_deref()?;
        presets().iter().find(|preset| preset.id == id)?.hf_config.clone()
    };
    file.hf_config.clone().or_else(of_preset).context(
        "the plan's model has no config.json, so there are no names to write it by; train a model by its config.json or a preset",
    )
}

/// All tensors in the order of the model, each with the parameters that have elements of it.
fn tensors(map: &WeightMap) -> anyhow::Result<Vec<Tensor>> {
    let mut order: Vec<Tensor> = Vec::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, mapped) in map.parameters.iter().enumerate() {
        for part in &mapped.parts {
            let place = *known.entry(part.tensor.as_str()).or_insert_with(|| {
                let shape = part.hf_shape.iter().map(|&extent| extent as usize).collect();
                order.push(Tensor { name: part.tensor.clone(), shape, from: Vec::new() });
                order.len() - 1
            });
            let from = &mut order[place].from;
            if from.last() != Some(&number) {
                from.push(number);
            }
        }
    }
    Ok(order)
}

struct Writer<'a> {
    reader: RefCell<CheckpointReader>,
    map: &'a WeightMap,
    format: Format,
    /// What went wrong while a file was written, whose writer knows no errors.
    failed: RefCell<Option<anyhow::Error>>,
}

/// A tensor that is made when it is written.
struct Made<'a> {
    writer: &'a Writer<'a>,
    tensor: &'a Tensor,
    dtype: Dtype,
}

impl View for Made<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.tensor.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let bytes = self.writer.bytes(self.tensor).unwrap_or_else(|error| {
            self.writer.failed.borrow_mut().get_or_insert(error);
            vec![0; self.data_len()]
        });
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.tensor.shape.iter().product::<usize>() * self.writer.format.bytes() as usize
    }
}

impl Writer<'_> {
    /// Writes all tensors into files of this size, and the index where there are several.
    fn files(&self, folder: &Path, tensors: &[Tensor], dtype: Dtype, most: u64) -> anyhow::Result<Exported> {
        let made: Vec<Made<'_>> = tensors.iter().map(|tensor| Made { writer: self, tensor, dtype }).collect();
        let mut groups: Vec<Vec<&Made<'_>>> = vec![Vec::new()];
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
        let count: usize = tensor.shape.iter().product();
        let mut bytes = vec![0; count * self.format.bytes() as usize];
        for &number in &tensor.from {
            let mapped = &self.map.parameters[number];
            let values = self.values(mapped)?;
            let offset = vec![0; mapped.shape.len()];
            for run in runs(mapped, &offset, &mapped.shape, 0, values.len() as u64) {
                let part = &mapped.parts[run.part];
                if part.tensor != tensor.name {
                    continue;
                }
                let from = usize::try_from(run.target)?;
                let values = &values[from..from + usize::try_from(run.count)?];
                let put = if part.add == 0.0 {
                    encode(self.format, values, run.first, run.stride, &mut bytes)
                } else {
                    let less: Vec<f32> = values.iter().map(|value| value - part.add as f32).collect();
                    encode(self.format, &less, run.first, run.stride, &mut bytes)
                };
                put.with_context(|| format!("{} does not fit {}", mapped.name, tensor.name))?;
            }
        }
        if let Some((router, _)) = self.map.router_biases.iter().find(|(_, name)| *name == tensor.name) {
            let values = self.read(("expert_bias", router), &[count as u64])?;
            encode(self.format, &values, 0, 1, &mut bytes).context("a bias does not fit")?;
        }
        Ok(bytes)
    }

    fn values(&self, mapped: &Mapped) -> anyhow::Result<Vec<f32>> {
        self.read(("weight", &mapped.name), &mapped.shape)
    }

    fn read(&self, name: (&str, &str), shape: &[u64]) -> anyhow::Result<Vec<f32>> {
        let elements: u64 = shape.iter().product();
        let mut values = vec![0.0; usize::try_from(elements)?];
        let want = Piece { offset: vec![0; shape.len()], extent: shape.to_vec(), start: 0, elements };
        self.reader.borrow_mut().read(name, shape, &want, |first, dtype, bytes| {
            let format = Format::of(&format!("{dtype:?}")).context("a type that is no float")?;
            let first = usize::try_from(first)?;
            let count = bytes.len() / format.bytes() as usize;
            decode(format, bytes, 0, 1, &mut values[first..first + count]).context("bytes are too few")
        })?;
        Ok(values)
    }
}

/// A view of one that is elsewhere.
struct Shared<'a>(&'a Made<'a>);

impl View for Shared<'_> {
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
