//! Where a model's files come from: a folder, GGUF files, or the binary itself.
//!
//! Owns: finding files by name and the sentences about a place that has no model.
//! Always true: a source has a config.json, or it is made of GGUF files and has nothing else; a name never leaves the
//! source's folder. Weight files are mapped, the small files beside them are read, so that editing config.json under a
//! running process cannot hurt it.
//! Not here: what the files say (`shards`, `gguf`, `model::config`, `text`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::Bytes;
use super::gguf::read::header;
use super::gguf::{Vocabulary, sets};
use crate::arena::host::FileMap;
use crate::error::{Error, Result};

const NEEDS: &str = "a model is a folder with config.json, tokenizer.json and the weights (*.safetensors), a GGUF file, or a \
    folder with one GGUF model";

/// A model's files, by name.
#[derive(Clone)]
pub struct Source {
    name: String,
    files: Files,
    /// Names of a GGUF model's parts, in order; empty for safetensors.
    parts: Vec<String>,
    /// GGUF files that [`Source::with`] added.
    sidecars: Vec<String>,
}

#[derive(Clone)]
enum Files {
    /// A folder, and files beside it that were added by [`Source::with`].
    Folder(PathBuf, BTreeMap<String, Bytes>),
    Memory(BTreeMap<String, Bytes>),
}

impl Source {
    /// The model at `path`: a folder, or a GGUF file (any part of a split one). An error says what a model needs.
    pub fn open(path: &Path) -> Result<Source> {
        let shown = path.display();
        let kind = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::model(format!("there is no folder or file {shown}: {NEEDS}")));
            }
            Err(error) => return Err(Error::io(format!("cannot open {shown}"))(error)),
        };
        // "." and "model/.." have a name only once they are resolved.
        let full = fs::canonicalize(path).map_err(Error::io(format!("cannot open {shown}")))?;
        if !kind.is_dir() {
            return Source::open_file(path, &full);
        }
        let name = full.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned());
        let mut source = Source::new(name, Files::Folder(path.to_path_buf(), BTreeMap::new()));
        let ggufs = source.names(".gguf")?;
        let has_config = path.join("config.json").is_file();
        // A GGUF repository often keeps the original's config.json.
        if !ggufs.is_empty() && (!has_config || source.names(".safetensors")?.is_empty()) {
            source.parts = sets::choose(&shown.to_string(), &ggufs, |name| read(&path.join(name)))?;
        } else if !has_config {
            return Err(Error::model(format!("{shown} has no config.json: {NEEDS}")));
        }
        Ok(source)
    }

    fn open_file(path: &Path, full: &Path) -> Result<Source> {
        let shown = path.display();
        let name = full.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(stem) = name.strip_suffix(".gguf") else {
            return Err(Error::model(format!(
                "{shown} is neither a folder nor a GGUF file: {NEEDS}; for safetensors name the folder, not a file in it"
            )));
        };
        let folder = full.parent().map(Path::to_path_buf).unwrap_or_default();
        let mut source = Source::new(stem.to_owned(), Files::Folder(folder, BTreeMap::new()));
        source.parts = sets::parts(&name).unwrap_or_else(|| vec![name]);
        Ok(source)
    }

    fn new(name: String, files: Files) -> Source {
        Source { name, files, parts: Vec::new(), sidecars: Vec::new() }
    }

    /// The model inside the binary, if it was built with one (feature `embedded-model`).
    pub fn embedded() -> Option<Source> {
        #[cfg(feature = "embedded-model")]
        {
            macro_rules! file {
                ($name:literal) => {
                    ($name.to_string(), Bytes::embedded(include_bytes!(concat!("../../models/ember/", $name))))
                };
            }
            let files = [
                file!("config.json"),
                file!("generation_config.json"),
                file!("tokenizer.json"),
                file!("tokenizer_config.json"),
                file!("chat_template.jinja"),
                file!("model.safetensors.index.json"),
                file!("model-00001-of-00002.safetensors"),
                file!("model-00002-of-00002.safetensors"),
            ];
            Some(Source::new("ember".into(), Files::Memory(files.into())))
        }
        #[cfg(not(feature = "embedded-model"))]
        None
    }

    /// A model made of bytes at hand. The same rules hold: a config.json, or one GGUF model.
    pub fn from_files(name: impl Into<String>, files: impl IntoIterator<Item = (String, Bytes)>) -> Result<Source> {
        let (name, files) = (name.into(), files.into_iter().collect::<BTreeMap<_, _>>());
        let mut source = Source::new(name, Files::Memory(BTreeMap::new()));
        if !files.contains_key("config.json") {
            let ggufs: Vec<String> = files.keys().filter(|name| name.ends_with(".gguf")).cloned().collect();
            if ggufs.is_empty() {
                return Err(Error::model(format!("{} has no config.json: {NEEDS}", source.name)));
            }
            source.parts = sets::choose(&source.name, &ggufs, |name| Ok(files.get(name).cloned()))?;
        }
        source.files = Files::Memory(files);
        Ok(source)
    }

    /// Adds a file that lies elsewhere, such as an MTP head beside the folder, under its own file name. It replaces a
    /// file of that name.
    pub fn with(mut self, path: &Path) -> Result<Source> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.ok_or_else(|| Error::model(format!("{} is not a file", path.display())))?;
        let is_gguf = name.ends_with(".gguf");
        if self.is_gguf() != is_gguf {
            return Err(Error::model(format!(
                "{} cannot join {}: GGUF and safetensors do not mix, their weights are stored in different conventions",
                path.display(),
                self.name
            )));
        }
        let bytes = read(path)?.ok_or_else(|| Error::model(format!("there is no file {}", path.display())))?;
        if is_gguf {
            self.sidecars.push(name.clone());
        }
        let (Files::Folder(_, files) | Files::Memory(files)) = &mut self.files;
        files.insert(name, bytes);
        Ok(self)
    }

    /// Whether the model is made of GGUF files, which hold its config and tokenizer too.
    pub fn is_gguf(&self) -> bool {
        !self.parts.is_empty()
    }

    /// The tokenizer and chat template inside a GGUF model, `None` if it has none or the model is not GGUF.
    pub fn vocabulary(&self) -> Result<Option<Vocabulary>> {
        let Some(name) = self.parts.first() else { return Ok(None) };
        let bytes = self.file(name)?;
        let bytes = bytes.ok_or_else(|| Error::model(format!("{} has no file {name}: download it", self.name)))?;
        Vocabulary::read(&header(name, &bytes)?.metadata)
    }

    /// The files of a GGUF model, in order; there is none for safetensors.
    pub fn gguf_parts(&self) -> &[String] {
        &self.parts
    }

    /// GGUF files that were added by [`Source::with`].
    pub fn gguf_sidecars(&self) -> &[String] {
        &self.sidecars
    }

    /// The folder's other GGUF files, sorted.
    pub fn other_gguf_files(&self) -> Result<Vec<String>> {
        let mut names = self.names(".gguf")?;
        names.retain(|name| !self.parts.contains(name) && !self.sidecars.contains(name));
        Ok(names)
    }

    /// A name for people: the folder's, or "ember".
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file `name` (no folders in it), or `None` if the source has none. A GGUF model has its GGUF files only: what
    /// lies beside them may belong to another model.
    pub fn file(&self, name: &str) -> Result<Option<Bytes>> {
        let own = |names: &[String]| names.iter().any(|own| own == name);
        if self.is_gguf() && !own(&self.parts) && !own(&self.sidecars) {
            return Ok(None);
        }
        self.beside(name)
    }

    /// Any file of the source's folder, whether it belongs to the model or not.
    pub(super) fn beside(&self, name: &str) -> Result<Option<Bytes>> {
        let mut parts = Path::new(name).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name) {
            return Err(Error::model(format!(
                "'{name}' is not a plain file name, so it is not a file of {}",
                self.name
            )));
        }
        match &self.files {
            Files::Memory(files) => Ok(files.get(name).cloned()),
            Files::Folder(folder, added) => match added.get(name) {
                Some(bytes) => Ok(Some(bytes.clone())),
                None => read(&folder.join(name)),
            },
        }
    }

    /// Names of all `*.safetensors` files, sorted.
    pub fn weight_files(&self) -> Result<Vec<String>> {
        self.names(".safetensors")
    }

    fn names(&self, ending: &str) -> Result<Vec<String>> {
        let (Files::Folder(_, files) | Files::Memory(files)) = &self.files;
        let mut names: Vec<String> = files.keys().cloned().collect();
        if let Files::Folder(folder, _) = &self.files {
            let what = || format!("cannot list {}", folder.display());
            for entry in fs::read_dir(folder).map_err(Error::io(what()))? {
                // A name that is not UTF-8 cannot stand in an index either.
                names.extend(entry.map_err(Error::io(what()))?.file_name().into_string());
            }
        }
        // "._name" is what macOS leaves beside a file on a foreign disk.
        names.retain(|name| name.ends_with(ending) && !name.starts_with('.'));
        names.sort();
        names.dedup();
        Ok(names)
    }
}

/// Weights are mapped, everything else is read.
fn read(path: &Path) -> Result<Option<Bytes>> {
    let what = || format!("cannot read {}", path.display());
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(Error::model(format!("{} is not a file", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(what())(error)),
    }
    if path.extension().is_some_and(|extension| extension == "safetensors" || extension == "gguf") {
        return Ok(Some(Bytes::mapped(Arc::new(FileMap::open(path)?))));
    }
    Ok(Some(Bytes::heap(fs::read(path).map_err(Error::io(what()))?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(result: Result<Source>) -> String {
        result.err().expect("should fail").to_string()
    }

    #[test]
    fn what_is_not_a_model_folder_is_told_what_one_needs() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("nowhere");
        assert!(sentence(Source::open(&missing)).contains("there is no folder or file"));
        let file = folder.path().join("model.bin");
        fs::write(&file, "x").unwrap();
        assert!(sentence(Source::open(&file)).contains("neither a folder nor a GGUF file"));
        let empty = sentence(Source::open(folder.path()));
        assert!(empty.contains("has no config.json") && empty.contains("tokenizer.json"), "{empty}");
    }

    #[test]
    fn a_name_with_folders_in_it_never_reaches_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        fs::create_dir(&model).unwrap();
        fs::write(model.join("config.json"), "{}").unwrap();
        fs::write(folder.path().join("secret.json"), "{}").unwrap();
        let source = Source::open(&model).unwrap();
        assert_eq!(source.name(), "model");
        for name in ["../secret.json", "", ".", "..", "./config.json", "config.json/", "/etc/hosts", "a/b"] {
            assert!(source.file(name).is_err(), "{name}");
        }
        assert_eq!(&*source.file("config.json").unwrap().unwrap(), b"{}");
        assert!(source.file("tokenizer.json").unwrap().is_none());
    }

    #[test]
    fn a_folder_named_by_a_dot_takes_the_name_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("flash");
        fs::create_dir_all(model.join("sub")).unwrap();
        fs::write(model.join("config.json"), "{}").unwrap();
        assert_eq!(Source::open(&model.join("sub/..")).unwrap().name(), "flash");
    }

    #[test]
    fn a_file_from_elsewhere_joins_the_source_under_its_own_name() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        fs::create_dir(&model).unwrap();
        fs::write(model.join("config.json"), "{}").unwrap();
        let head = folder.path().join("mtp.safetensors");
        assert!(sentence(Source::open(&model).unwrap().with(&head)).contains("there is no file"));
        fs::write(&head, "x").unwrap();
        let source = Source::open(&model).unwrap().with(&head).unwrap();
        assert_eq!(source.weight_files().unwrap(), ["mtp.safetensors"]);
        assert!(source.file("mtp.safetensors").unwrap().unwrap().is_mapped());
    }

    #[test]
    #[cfg(feature = "embedded-model")]
    fn the_embedded_model_is_complete() {
        let source = Source::embedded().unwrap();
        assert_eq!(source.name(), "ember");
        for name in ["config.json", "tokenizer.json", "chat_template.jinja", "generation_config.json"] {
            assert!(source.file(name).unwrap().is_some(), "{name}");
        }
        assert_eq!(source.weight_files().unwrap().len(), 2);
    }

    #[test]
    #[cfg(not(feature = "embedded-model"))]
    fn a_binary_without_a_model_says_so() {
        assert!(Source::embedded().is_none());
    }
}
