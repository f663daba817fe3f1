//! Which GGUF files of a folder belong together, told by their names and the headers' first keys.
//!
//! Owns: the naming of split files and the choice among several models.
//! Always true: names are only compared; a choice that is not clear is an error that lists what there is.
//! Not here: checks across the parts of a set (`open`).

use super::{ARCHITECTURE, TABLE_NAMES, read};
use crate::error::{Error, Result};
use crate::weights::Bytes;

/// The files of a split, in order, if `name` is one of them: `NAME-00002-of-00003.gguf`.
pub fn parts(name: &str) -> Option<Vec<String>> {
    let stem = name.strip_suffix(".gguf")?;
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (base, number) = rest.rsplit_once('-')?;
    let read = |digits: &str| match digits.len() == 5 && digits.bytes().all(|b| b.is_ascii_digit()) {
        true => digits.parse::<usize>().ok(),
        false => None,
    };
    let (number, count) = (read(number)?, read(count)?);
    (1..=count).contains(&number).then(|| (1..=count).map(|i| format!("{base}-{i:05}-of-{count:05}.gguf")).collect())
}

/// Sets of files by name: each split once, with every name it needs; each other file alone.
pub fn group(names: &[String]) -> Vec<Vec<String>> {
    let mut sets: Vec<Vec<String>> = Vec::new();
    for name in names.iter().filter(|name| name.ends_with(".gguf")) {
        let set = parts(name).unwrap_or_else(|| vec![name.clone()]);
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    sets
}

/// The one set of `names` that is a model; `open` gives a file's bytes. `place` is for messages.
pub fn choose(
    place: &str,
    names: &[String],
    mut open: impl FnMut(&str) -> Result<Option<Bytes>>,
) -> Result<Vec<String>> {
    let mut sets = group(names);
    if sets.len() > 1 {
        let mut models = Vec::new();
        for set in &sets {
            // The first part that is there: a missing one is reported later, with its name.
            let Some(first) = set.iter().find(|name| names.contains(name)) else { continue };
            let Some(bytes) = open(first)? else { continue };
            let Ok(header) = read::header(first, &bytes) else { continue };
            let ours = header.metadata.text("general.architecture").ok().flatten() == Some(ARCHITECTURE);
            let only_table = header.tensors.iter().all(|tensor| TABLE_NAMES.contains(&tensor.name.as_str()));
            if set.len() > 1 || (ours && !only_table) {
                models.push(set.clone());
            }
        }
        sets = models;
    }
    match sets.len() {
        1 => Ok(sets.remove(0)),
        0 => Err(Error::model(format!("no GGUF file of {place} is a {ARCHITECTURE} model"))),
        _ => {
            let firsts: Vec<&str> = sets.iter().map(|set| set[0].as_str()).collect();
            Err(Error::model(format!("{place} has several models: name one of {}", firsts.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_names_all_parts_and_nothing_else_does() {
        let all = ["m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"];
        assert_eq!(parts(all[1]).unwrap(), all);
        assert_eq!(parts("a-b-00001-of-00001.gguf").unwrap(), ["a-b-00001-of-00001.gguf"]);
        let not = ["m.gguf", "m-00004-of-00003.gguf", "m-00000-of-00003.gguf", "m-1-of-3.gguf", "m-00001-of-00003.bin"];
        for name in not {
            assert!(parts(name).is_none(), "{name}");
        }
    }

    #[test]
    fn an_incomplete_split_is_still_one_set() {
        let names = ["b.gguf", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "n-00002-of-00002.gguf"];
        let sets = group(&names.map(String::from));
        assert_eq!(sets.len(), 3);
        assert_eq!(sets[2], ["n-00001-of-00002.gguf", "n-00002-of-00002.gguf"]);
    }
}
