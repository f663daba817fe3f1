//! Where each setting comes from: flag > HIPFIRE_<FLAG> > `[model."name"]` > configuration file > default.
//!
//! Owns: the environment names, the configuration file and its keys, the record of origins.
//! Always true: a key means what the flag of the same name means and goes through the same parser; a key that no verb
//! knows is an error.
//! Not here: the options themselves (`args`), their meaning.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};
use toml::{Table, Value};

use super::Failure;
use super::args::Cli;
use crate::error::Error;

/// Options that say what to do now; they are neither environment names nor configuration keys.
const NOT_SETTINGS: [&str; 21] = [
    "help",
    "version",
    "print-config",
    "verbose",
    "quiet",
    "prompt",
    "file",
    "tokens",
    "plan",
    "kernels",
    "only",
    "self-test",
    "json",
    "no-think",
    "text",
    "shell",
    "output",
    "type",
    "tensor-type",
    "no-mtp",
    "force",
];

/// The name under which the embedded model has its `[model."…"]` table.
const EMBEDDED: &str = "embedded";

/// The command line with every layer below it.
pub struct Resolved {
    /// Typed values.
    pub cli: Cli,
    /// Every setting of the chosen verb, in the order of its help.
    pub settings: Vec<Setting>,
}

/// One setting as `--print-config` shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Name of the flag, also the key.
    pub name: String,
    /// As written; empty if nothing was given and there is no default.
    pub values: Vec<String>,
    /// Who gave it.
    pub origin: Origin,
}

/// Who gave a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// An environment variable.
    Environment(String),
    /// A table of one model in the configuration file.
    ModelTable(PathBuf, String),
    /// The configuration file.
    File(PathBuf),
    /// A file of the model.
    Model(&'static str),
    /// Nobody.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag => f.write_str("command line"),
            Origin::Environment(name) => write!(f, "environment, {name}"),
            Origin::ModelTable(file, name) => write!(f, "{}, [model.\"{name}\"]", file.display()),
            Origin::File(file) => write!(f, "{}", file.display()),
            Origin::Model(file) => write!(f, "the model's {file}"),
            Origin::Default => f.write_str("default"),
        }
    }
}

impl Setting {
    /// The text as a number or a truth value, if JSON (and so TOML) reads it as one.
    fn bare(text: &str) -> Option<serde_json::Value> {
        let value: serde_json::Value = serde_json::from_str(text).ok()?;
        (value.is_number() || value.is_boolean()).then_some(value)
    }

    /// As a JSON value: null if not set, a list if the setting is one.
    pub fn json(&self) -> serde_json::Value {
        let one = |text: &String| Setting::bare(text).unwrap_or_else(|| text.as_str().into());
        match self.values.as_slice() {
            list if LISTS.contains(&self.name.as_str()) => list.iter().map(String::as_str).collect(),
            [] => serde_json::Value::Null,
            [single, ..] => one(single),
        }
    }
}

impl fmt::Display for Setting {
    /// As a line of a configuration file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote =
            |text: &String| match text.parse::<f64>().is_ok_and(f64::is_finite) || text == "true" || text == "false" {
                true => text.clone(),
                false => Value::String(text.clone()).to_string(),
            };
        let line = match self.values.as_slice() {
            [_, ..] if SECRETS.contains(&self.name.as_str()) => format!("# {} is set", self.name),
            [] => format!("# {} is not set", self.name),
            [one] if !LISTS.contains(&self.name.as_str()) => format!("{} = {}", self.name, quote(one)),
            list => {
                let list: Vec<String> = list.iter().map(|text| Value::String(text.clone()).to_string()).collect();
                format!("{} = [{}]", self.name, list.join(", "))
            }
        };
        write!(f, "{line:<40} # {}", self.origin)
    }
}

/// Settings that hold several values.
const LISTS: [&str; 4] = ["stop", "logit-bias", "cors-origin", "alias"];

/// Names that a setting had before; they count where the present one is not set.
const OLDER_NAMES: [(&str, &str); 1] = [("HIPFIRE_QSA_GATHER", "HIPFIRE_QWEN4_QSA_WMMA_GATHER")];
/// Settings whose value is never shown.
const SECRETS: [&str; 1] = ["api-key"];

/// Reads all layers. The arguments start with the program's name.
pub fn resolve(args: Vec<OsString>) -> Result<Resolved, Failure> {
    let command = with_environment(Cli::command());
    // The first pass finds the file and the model's name; it also reports mistakes of the upper two layers.
    let first = command.clone().try_get_matches_from(&args)?;
    let (verb, chosen) = match first.subcommand() {
        Some((verb, chosen)) => (Some(verb.to_string()), chosen),
        None => (None, &first),
    };
    let file = ConfigFile::find(chosen.get_one::<PathBuf>("config"))?;
    let model = match chosen.try_get_raw("model").ok().flatten().and_then(|mut values| values.next()) {
        Some(model) => model.to_string_lossy().into_owned(),
        None => file.default_model().unwrap_or(EMBEDDED).to_string(),
    };
    let layers = file.layers(&model)?;

    let command = match &verb {
        Some(verb) => {
            with_defaults(command, &layers, true).mut_subcommand(verb, |sub| with_defaults(sub, &layers, false))
        }
        None => with_defaults(command, &layers, true),
    };
    let matches = command.clone().try_get_matches_from(&args)?;
    let mut settings = Vec::new();
    if let (Some(verb), Some((_, chosen))) = (&verb, matches.subcommand()) {
        let arguments = command.find_subcommand(verb).into_iter().flat_map(Command::get_arguments);
        settings.extend(arguments.filter_map(|arg| setting(arg, chosen, &layers)));
        settings.extend(command.get_arguments().filter_map(|arg| setting(arg, chosen, &layers)));
    } else {
        settings.extend(command.get_arguments().filter_map(|arg| setting(arg, &matches, &layers)));
    }
    Ok(Resolved { cli: Cli::from_arg_matches(&matches)?, settings })
}

/// The long name, if the option is a setting.
fn setting_name(arg: &Arg) -> Option<&str> {
    arg.get_long().filter(|name| !NOT_SETTINGS.contains(name))
}

/// `HIPFIRE_` and the flag's name.
fn environment_name(setting: &str) -> String {
    let name = format!("HIPFIRE_{}", setting.to_uppercase().replace('-', "_"));
    match OLDER_NAMES.iter().find(|(newer, _)| *newer == name) {
        Some((_, older)) if std::env::var_os(&name).is_none() && std::env::var_os(older).is_some() => (*older).into(),
        _ => name,
    }
}

fn with_environment(command: Command) -> Command {
    let named = |arg: Arg| match setting_name(&arg).map(environment_name) {
        Some(name) => arg.env(name).hide_env(true),
        None => arg,
    };
    command.mut_args(named).mut_subcommands(move |sub| sub.mut_args(named))
}

/// Puts the file's values where clap keeps defaults: flags and environment stay above them.
fn with_defaults(command: Command, layers: &Layers, global: bool) -> Command {
    command.mut_args(|arg| match setting_name(&arg).and_then(|name| layers.get(name)) {
        Some(layer) if arg.is_global_set() == global => arg.default_values(layer.values.clone()),
        _ => arg,
    })
}

fn setting(arg: &Arg, matches: &ArgMatches, layers: &Layers) -> Option<Setting> {
    let name = setting_name(arg)?;
    let id = arg.get_id().as_str();
    let raw = matches.try_get_raw(id).ok().flatten();
    let values: Vec<String> = raw.into_iter().flatten().map(|value| value.to_string_lossy().into_owned()).collect();
    let origin = match matches.value_source(id) {
        Some(ValueSource::CommandLine) => Origin::Flag,
        Some(ValueSource::EnvVariable) => Origin::Environment(environment_name(name)),
        _ => layers.get(name).map_or(Origin::Default, |layer| layer.origin.clone()),
    };
    // The flag has two spellings, the setting one.
    let unsaid = name == "think" && matches.value_source("no_think") == Some(ValueSource::CommandLine);
    Some(match unsaid {
        true => Setting { name: name.into(), values: vec!["false".into()], origin: Origin::Flag },
        false => Setting { name: name.into(), values, origin },
    })
}

/// A value below the environment.
struct Layer {
    values: Vec<String>,
    origin: Origin,
}

type Layers = BTreeMap<String, Layer>;

/// The configuration file, if there is one.
#[derive(Default)]
struct ConfigFile {
    path: PathBuf,
    table: Table,
}

impl ConfigFile {
    /// The named file must exist; the one on the XDG path may.
    fn find(named: Option<&PathBuf>) -> Result<ConfigFile, Failure> {
        if let Some(path) = named {
            let what = format!("cannot read the configuration file {}", path.display());
            return ConfigFile::parse(path, &std::fs::read_to_string(path).map_err(Error::io(what))?);
        }
        let folder = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let base = folder("XDG_CONFIG_HOME").or_else(|| folder("HOME").map(|home| home.join(".config")));
        let Some(path) = base.map(|base| base.join("hipfire/config.toml")) else { return Ok(ConfigFile::default()) };
        match std::fs::read_to_string(&path) {
            Ok(text) => ConfigFile::parse(&path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(ConfigFile::default()),
            Err(error) => {
                Err(Error::io(format!("cannot read the configuration file {}", path.display()))(error).into())
            }
        }
    }

    fn parse(path: &Path, text: &str) -> Result<ConfigFile, Failure> {
        let table = text.parse().map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        Ok(ConfigFile { path: path.into(), table })
    }

    /// `model = "DIR"`, or `default = "DIR"` under `[model]` beside the tables of single models.
    fn default_model(&self) -> Option<&str> {
        match self.table.get("model")? {
            Value::String(model) => Some(model),
            Value::Table(models) => models.get("default")?.as_str(),
            _ => None,
        }
    }

    /// All keys checked; those of `model` (as given, or its folder's name) above those of the whole file.
    fn layers(&self, model: &str) -> Result<Layers, Failure> {
        let mut layers = Layers::new();
        let known = known();
        for (key, value) in self.table.iter().filter(|(key, value)| *key != "model" || !value.is_table()) {
            layers.insert(key.clone(), self.layer(&known, "", key, value, Origin::File(self.path.clone()))?);
        }
        let Some(Value::Table(models)) = self.table.get("model") else { return Ok(layers) };
        let folder = Path::new(model).file_name().and_then(|name| name.to_str()).unwrap_or(model);
        for (name, entry) in models {
            let origin = Origin::ModelTable(self.path.clone(), name.clone());
            let settings = match entry {
                Value::Table(settings) => settings,
                Value::String(_) if name == "default" => {
                    let origin = Origin::File(self.path.clone());
                    layers.insert("model".into(), self.layer(&known, "model.", "model", entry, origin)?);
                    continue;
                }
                _ => {
                    return Err(self.wrong(&format!(
                        "model.{name} is not a table: write [model.\"{name}\"] above the settings of that model"
                    )));
                }
            };
            for (key, value) in settings {
                let place = format!("[model.\"{name}\"] ");
                let layer = self.layer(&known, &place, key, value, origin.clone())?;
                if key == "model" {
                    return Err(self.wrong(&format!("{place}cannot set 'model' itself")));
                }
                if name == model || name == folder {
                    layers.insert(key.clone(), layer);
                }
            }
        }
        Ok(layers)
    }

    fn layer(&self, known: &Known, place: &str, key: &str, value: &Value, origin: Origin) -> Result<Layer, Failure> {
        let Some(verb) = known.get(key) else {
            let near =
                known.keys().max_by(|a, b| strsim::jaro_winkler(a, key).total_cmp(&strsim::jaro_winkler(b, key)));
            let hint = match near {
                Some(near) if strsim::jaro_winkler(near, key) > 0.75 => format!("did you mean '{near}'?"),
                _ => "see `hipfire run --help` for the options; each is a key without its dashes".into(),
            };
            return Err(self.wrong(&format!("{place}key '{key}' is not known; {hint}")));
        };
        let single = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => Some(value.to_string()),
            _ => None,
        };
        let values = match value {
            Value::Array(list) if LISTS.contains(&key) => list.iter().map(single).collect(),
            value => single(value).map(|value| vec![value]),
        };
        let Some(values) = values else {
            return Err(self.wrong(&format!("{place}key '{key}' cannot be a {}", value.type_str())));
        };
        // The option's own parser judges the value, on a command line that holds nothing else.
        let options = values.iter().map(|value| format!("--{key}={value}"));
        let line = ["hipfire".to_string()].into_iter().chain(verb.clone()).chain(options);
        if let Err(error) = Cli::command().try_get_matches_from(line) {
            let text = error.to_string();
            let reason = text.lines().next().unwrap_or_default();
            return Err(self.wrong(&format!("{place}key '{key}': {}", reason.trim_start_matches("error: "))));
        }
        Ok(Layer { values, origin })
    }

    fn wrong(&self, message: &str) -> Failure {
        Failure::Usage(format!("{}: {message}", self.path.display()))
    }
}

/// Every key with a verb that has it (`None`: all verbs).
type Known = BTreeMap<String, Option<String>>;

fn known() -> Known {
    let command = Cli::command();
    let mut known = Known::new();
    for sub in command.get_subcommands() {
        let names = sub.get_arguments().filter_map(setting_name);
        known.extend(names.map(|name| (name.to_string(), Some(sub.get_name().to_string()))));
    }
    known.extend(command.get_arguments().filter_map(setting_name).map(|name| (name.to_string(), None)));
    known.remove("config");
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_configuration_is_accepted_and_the_default_one_names_every_key() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|kind| kind != "toml") {
                continue;
            }
            let file = ConfigFile::parse(&path, &std::fs::read_to_string(&path).unwrap()).ok().unwrap();
            assert!(file.layers(EMBEDDED).is_ok(), "{}", path.display());
        }
        // What is commented out must be right too.
        let text = std::fs::read_to_string(folder.join("default.toml")).unwrap();
        let shown: String =
            text.lines().filter_map(|line| line.strip_prefix("#: ")).map(|l| format!("{l}\n")).collect();
        let file = ConfigFile::parse(Path::new("default.toml"), &shown).ok().unwrap();
        assert!(file.layers(EMBEDDED).is_ok());
        let missing: Vec<String> = known().into_keys().filter(|key| !file.table.contains_key(key)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn a_models_table_is_above_the_file_and_only_for_that_model() {
        let text = "kv-mode = \"q8\"\n[model]\ndefault = \"/m/big\"\n[model.\"big\"]\nkv-mode = \"fp8\"\nstop = [\"a\", \"b\"]";
        let file = ConfigFile::parse(Path::new("c.toml"), text).ok().unwrap();
        assert_eq!(file.default_model(), Some("/m/big"));
        let layers = file.layers("/m/big").ok().unwrap();
        assert_eq!(layers["kv-mode"].values, ["fp8"]);
        assert_eq!(layers["stop"].values, ["a", "b"]);
        assert_eq!(layers["model"].values, ["/m/big"]);
        assert_eq!(file.layers("other").ok().unwrap()["kv-mode"].values, ["q8"]);
    }

    #[test]
    fn wrong_keys_and_values_name_the_file_the_key_and_the_remedy() {
        let refused = |text: &str| {
            let file = ConfigFile::parse(Path::new("c.toml"), text);
            match file.and_then(|file| file.layers(EMBEDDED)) {
                Err(Failure::Usage(message)) => message,
                _ => panic!("{text} was accepted"),
            }
        };
        for (text, parts) in [
            ("temprature = 1", ["c.toml", "'temprature'", "'temperature'"]),
            ("prompt = \"x\"", ["c.toml", "'prompt'", "not known"]),
            ("max-seq = \"many\"", ["c.toml", "'max-seq'", "32k"]),
            ("kv-mode = \"q4\"", ["c.toml", "'kv-mode'", "fp8"]),
            ("raw = [1]", ["c.toml", "'raw'", "array"]),
            ("[model.\"x\"]\nthredas = 2", ["c.toml", "[model.\"x\"]", "'threads'"]),
            ("model.x = 1", ["c.toml", "model.x", "not a table"]),
            ("a = = 1", ["c.toml", "line 1", ""]),
        ] {
            let message = refused(text);
            assert!(parts.iter().all(|part| message.contains(part)), "{text}: {message}");
        }
    }
}
