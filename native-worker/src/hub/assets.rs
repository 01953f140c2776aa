//! The page: as it was built into this binary, or from a folder.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use sha2::{Digest, Sha256};

/// The page in this binary.
#[cfg(feature = "page")]
mod built_in {
    #[derive(rust_embed::RustEmbed)]
    #[folder = "../dist"]
    #[allow_missing = true]
    pub struct Dist;
}

/// Shown when there is no page.
const NO_PAGE: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Shardplan</title></head>\n\
<body><h1>The page is not built</h1>\n<p>This hub runs, but its binary was built without the page. In the checkout, run \
<code>cargo xtask run</code>: it builds the page and a hub that serves it.</p></body></html>\n";

/// A page has some ten files. What is beyond this is another folder, named by mistake.
const MAX_FILES: usize = 200;
/// Bytes of the largest file that is served; a page that was built to be there soon has modules of some 30 MB.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// What the names of files end in that were compressed when the page was built, beside what they are of.
const COMPRESSED: &str = ".gz";

/// One file.
struct Asset {
    bytes: Bytes,
    content_type: &'static str,
    cache: &'static str,
    etag: String,
    compressed: OnceLock<Option<Bytes>>,
}

/// All files, and the policy that lets the page run nothing else.
pub struct Assets {
    files: BTreeMap<String, Asset>,
    policy: HeaderValue,
    built: bool,
}

impl Assets {
    /// The files of a folder, else those of this binary.
    pub fn load(folder: Option<&Path>) -> Self {
        match folder {
            Some(folder) => Self::from_files(files_of(folder).into_iter()),
            None => Self::built_in(),
        }
    }

    #[cfg(feature = "page")]
    fn built_in() -> Self {
        use built_in::Dist;
        let names: Vec<Cow<'static, str>> = Dist::iter().collect();
        let files = names.iter().filter_map(|name| Some((name.to_string(), Dist::get(name)?.data)));
        Self::from_files(files)
    }

    #[cfg(not(feature = "page"))]
    fn built_in() -> Self {
        Self::from_files(std::iter::empty())
    }

    fn from_files(files: impl Iterator<Item = (String, Cow<'static, [u8]>)>) -> Self {
        let (compressed, files): (Vec<_>, Vec<_>) = files.partition(|(name, _)| name.ends_with(COMPRESSED));
        let mut files: BTreeMap<String, Asset> =
            files.into_iter().map(|(name, data)| (name.clone(), Asset::new(&name, data))).collect();
        for (name, data) in compressed {
            if let Some(asset) = name.strip_suffix(COMPRESSED).and_then(|name| files.get_mut(name)) {
                asset.has_beside(data);
            }
        }
        let built = files.contains_key("index.html");
        let index = files
            .entry("index.html".to_owned())
            .or_insert_with(|| Asset::new("index.html", Cow::Borrowed(NO_PAGE.as_bytes())));
        let policy = policy(&String::from_utf8_lossy(&index.bytes));
        Assets { files, policy, built }
    }

    /// Whether there is no page.
    pub fn is_empty(&self) -> bool {
        !self.built
    }

    /// The file at `path` of a URL.
    pub fn serve(&self, path: &str, request: &HeaderMap) -> Response {
        let name = path.trim_start_matches('/');
        let Some(asset) = self.files.get(if name.is_empty() { "index.html" } else { name }) else {
            return (StatusCode::NOT_FOUND, "There is no such file\n").into_response();
        };
        let mut headers = HeaderMap::new();
        let mut set = |name, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        set(header::CONTENT_TYPE, asset.content_type);
        set(header::CACHE_CONTROL, asset.cache);
        set(header::ETAG, &asset.etag);
        set(header::VARY, "accept-encoding");
        headers.insert(header::CONTENT_SECURITY_POLICY, self.policy.clone());
        if request.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == asset.etag.as_bytes()) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        if accepts_gzip(request)
            && let Some(compressed) = asset.compressed()
        {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            return (headers, compressed).into_response();
        }
        (headers, asset.bytes.clone()).into_response()
    }
}

/// Names and contents of the files in a folder and its folders; links are not followed, and what can't be read is left out.
fn files_of(folder: &Path) -> Vec<(String, Cow<'static, [u8]>)> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), String::new())];
    while let Some((path, prefix)) = folders.pop() {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else { continue };
            let name = format!("{prefix}{name}");
            if kind.is_dir() && folders.len() < MAX_FILES {
                folders.push((entry.path(), format!("{name}/")));
            } else if kind.is_file()
                && files.len() < MAX_FILES
                && entry.metadata().is_ok_and(|facts| facts.len() <= MAX_FILE_BYTES)
                && let Ok(bytes) = std::fs::read(entry.path())
            {
                files.push((name, Cow::Owned(bytes)));
            }
        }
    }
    files
}

impl Asset {
    fn new(name: &str, data: Cow<'static, [u8]>) -> Self {
        let bytes = bytes_of(data);
        let etag = format!("\"{}\"", hex::encode(&Sha256::digest(&bytes)[..16]));
        Asset {
            content_type: content_type(name),
            cache: cache(name),
            etag,
            bytes,
            compressed: OnceLock::new(),
        }
    }

    /// Takes what was compressed when the page was built, if it is of these bytes: by the length and sum that gzip ends with.
    fn has_beside(&mut self, small: Cow<'static, [u8]>) {
        let mut sum = flate2::Crc::new();
        sum.update(&self.bytes);
        let end = [sum.sum().to_le_bytes(), sum.amount().to_le_bytes()].concat();
        if small.starts_with(&[0x1f, 0x8b]) && small.ends_with(&end) && small.len() < self.bytes.len() {
            self.compressed = OnceLock::from(Some(bytes_of(small)));
        }
    }

    /// Compressed once, when first asked for; none when that saves nothing.
    fn compressed(&self) -> Option<Bytes> {
        self.compressed
            .get_or_init(|| {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
                encoder.write_all(&self.bytes).ok()?;
                let compressed = encoder.finish().ok()?;
                (compressed.len() < self.bytes.len()).then(|| Bytes::from(compressed))
            })
            .clone()
    }
}

fn bytes_of(data: Cow<'static, [u8]>) -> Bytes {
    match data {
        Cow::Borrowed(data) => Bytes::from_static(data),
        Cow::Owned(data) => Bytes::from(data),
    }
}

fn accepts_gzip(request: &HeaderMap) -> bool {
    let accepted = request.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("");
    accepted
        .split(',')
        .map(str::trim)
        .any(|coding| coding == "gzip" || coding.starts_with("gzip;") && !coding.ends_with("q=0"))
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("css") => "text/css; charset=utf-8",
        Some("json" | "webmanifest") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// A name with a hash in it never changes its content; the rest is asked for again each time.
fn cache(name: &str) -> &'static str {
    let hashed = name
        .split(['-', '_', '.'])
        .any(|part| part.len() >= 16 && part.bytes().all(|byte| byte.is_ascii_hexdigit()));
    match (name.ends_with(".html"), hashed) {
        (true, _) => "no-store",
        (_, true) => "public, max-age=31536000, immutable",
        _ => "no-cache",
    }
}

/// Only what this hub serves may run. The builder's start script stands in the page itself, and is known by its hash.
/// Charts set style attributes, hence inline styles.
fn policy(index: &str) -> HeaderValue {
    let hashes: String = inline_scripts(index)
        .iter()
        .map(|script| {
            let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(script.as_bytes()));
            format!(" 'sha256-{hash}'")
        })
        .collect();
    let policy = format!(
        "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'{hashes}; style-src 'self' 'unsafe-inline'; \
         img-src 'self' data: blob:; connect-src 'self' ws: wss:; worker-src 'self' blob:; object-src 'none'; \
         base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
    );
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'self'"))
}

/// Contents of the scripts that have no `src`.
fn inline_scripts(html: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find("<script") {
        rest = &rest[start..];
        let Some(open) = rest.find('>') else { break };
        let tag = &rest[..open];
        let Some(end) = rest.find("</script") else { break };
        if !tag.contains(" src=") && open < end {
            found.push(&rest[open + 1..end]);
        }
        rest = &rest[end + "</script".len()..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_in_the_page() {
        let html =
            "<script src=\"/a.js\"></script><script type=\"module\">\nimport x;\n</script><script>b</script>";
        assert_eq!(inline_scripts(html), ["\nimport x;\n", "b"]);
        let policy = policy("<script>b</script>");
        let policy = policy.to_str().expect("text");
        assert!(policy.contains("'sha256-PiPoFgA5WUoziU9lZOGxNIu9egCI1CxKy3PurtWcAJ0='"), "{policy}");
    }

    #[test]
    fn caching() {
        assert_eq!(cache("index.html"), "no-store");
        assert_eq!(cache("page-0123456789abcdef_bg.wasm"), "public, max-age=31536000, immutable");
        assert_eq!(cache("icon.svg"), "no-cache");
        assert_eq!(content_type("a_bg.wasm"), "application/wasm");
    }

    #[test]
    fn a_page_of_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [("index.html", "<p>"), ("parts/deep/a.js", "a")] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        std::os::unix::fs::symlink("/etc/hostname", folder.path().join("link")).expect("linked");
        let assets = Assets::load(Some(folder.path()));
        assert!(!assets.is_empty());
        let status = |path: &str| assets.serve(path, &HeaderMap::new()).status();
        assert_eq!(status("/"), StatusCode::OK);
        assert_eq!(status("/parts/deep/a.js"), StatusCode::OK);
        assert_eq!(status("/link"), StatusCode::NOT_FOUND);
        assert!(Assets::load(Some(&folder.path().join("absent"))).is_empty());
    }

    #[test]
    fn what_was_compressed_before_is_sent_if_it_is_of_the_file() {
        let text = "word ".repeat(100);
        let pack = |text: &str, level: u32| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
            encoder.write_all(text.as_bytes()).expect("written");
            encoder.finish().expect("compressed")
        };
        let sent = |beside: Vec<u8>| {
            let files = [("a.js".to_owned(), text.clone().into_bytes()), ("a.js.gz".to_owned(), beside)];
            let assets = Assets::from_files(files.into_iter().map(|(name, data)| (name, Cow::Owned(data))));
            let status = |path: &str| assets.serve(path, &HeaderMap::new()).status();
            assert_eq!([status("/a.js"), status("/a.js.gz")], [StatusCode::OK, StatusCode::NOT_FOUND]);
            assets.files["a.js"].compressed().expect("smaller").to_vec()
        };
        let (quick, small) = (pack(&text, 6), pack(&text, 1));
        assert_ne!(quick, small);
        assert_eq!(sent(small.clone()), small);
        let of_another = pack(&text.replacen("word", "sword", 1), 6);
        for other in [of_another, small[..small.len() - 1].to_vec(), small[1..].to_vec(), Vec::new()] {
            assert_eq!(sent(other), quick);
        }
    }

    #[test]
    fn a_page_that_is_not_built() {
        let assets = Assets::from_files(std::iter::empty());
        assert!(assets.is_empty());
        assert_eq!(assets.serve("/", &HeaderMap::new()).status(), StatusCode::OK);
        assert_eq!(assets.serve("/other", &HeaderMap::new()).status(), StatusCode::NOT_FOUND);
    }
}
