//! Values as a person writes them: sizes with suffixes, limits, devices, biases.
//!
//! Owns: the parsers that clap calls for flags, environment and configuration file alike.
//! Always true: a refusal says what would be accepted; clap adds the option's name.
//! Not here: which option takes which value (`args`).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::config::{Device, KvBackend, KvMode};
use crate::engine::MemoryLimit;
use crate::engine::speculate::{Depth, MAX_DRAFTS};

/// A whole number with an optional binary suffix: `4096`, `32k`, `2M`, `1G`.
pub fn size(text: &str) -> Result<usize, String> {
    let bytes = scaled(text)?;
    usize::try_from(bytes).map_err(|_| format!("'{text}' is too large"))
}

/// Numbers of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts(pub Vec<usize>);

/// A list of numbers and ranges: `512`, `0,8192`, `1024-4096+1024`, `512-8192*2`.
pub fn counts(text: &str) -> Result<Counts, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let Some((first, rest)) = part.split_once('-') else {
            all.push(size(part)?);
            continue;
        };
        let at =
            rest.find(['+', '*']).ok_or_else(|| format!("the range '{part}' needs a step: {part}+512 or {part}*2"))?;
        let (mut next, last, step) = (size(first)?, size(&rest[..at])?, size(&rest[at + 1..])?);
        let times = rest[at..].starts_with('*');
        if step < if times { 2 } else { 1 } || (times && next == 0) {
            return Err(format!("the range '{part}' never ends"));
        }
        while next <= last {
            all.push(next);
            next = if times { next.saturating_mul(step) } else { next.saturating_add(step) };
        }
    }
    Ok(Counts(all))
}

/// At least 1.
pub fn positive_size(text: &str) -> Result<usize, String> {
    match size(text)? {
        0 => Err("use a number of at least 1".into()),
        n => Ok(n),
    }
}

/// Bytes with a suffix (`16G`, `1.5G`) or a share of the memory (`80%`).
pub fn memory_limit(text: &str) -> Result<MemoryLimit, String> {
    if let Some(share) = text.strip_suffix('%') {
        return match share.trim().parse::<f64>() {
            Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(MemoryLimit::Percent(percent)),
            _ => Err("use a share above 0% and up to 100%".into()),
        };
    }
    match scaled(text)? {
        0 => Err("use more than 0 bytes".into()),
        bytes => Ok(MemoryLimit::Bytes(bytes)),
    }
}

/// Seconds, whole or not, up to a year.
pub fn seconds(text: &str) -> Result<Duration, String> {
    const YEAR: f64 = 366.0 * 86400.0;
    match text.trim().parse::<f64>() {
        Ok(seconds) if (0.0..=YEAR).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("use a number of seconds, at least 0".into()),
    }
}

fn scaled(text: &str) -> Result<u64, String> {
    let wrong = || "use a number, with k, M or G for 1024, 1024² or 1024³ of them (32k, 1.5G)".to_string();
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is too large"));
    }
    // A fraction must come out whole: 1.5k is 1536, 1.5 is a mistake.
    let value = digits.parse::<f64>().map_err(|_| wrong())? * (1u64 << shift) as f64;
    if value < 0.0 || value.fract() != 0.0 || value >= (1u64 << 53) as f64 {
        return Err(wrong());
    }
    Ok(value as u64)
}

/// `auto`, or a value that the crate's configuration knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auto<T> {
    /// Left to the program.
    Auto,
    /// Chosen.
    Is(T),
}

impl<T> Auto<T> {
    /// The choice, if one was made.
    pub fn chosen(self) -> Option<T> {
        match self {
            Auto::Auto => None,
            Auto::Is(value) => Some(value),
        }
    }
}

impl<T: FromStr<Err = crate::error::Error>> FromStr for Auto<T> {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Auto::Auto),
            _ => text.parse().map(Auto::Is).map_err(|error: crate::error::Error| format!("{error}, auto")),
        }
    }
}

impl<T: fmt::Display> fmt::Display for Auto<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Auto::Auto => f.write_str("auto"),
            Auto::Is(value) => value.fmt(f),
        }
    }
}

/// See [`Auto`].
pub type AutoKvMode = Auto<KvMode>;
/// See [`Auto`].
pub type AutoKvBackend = Auto<KvBackend>;

/// `auto`, `cpu`, `hip` (the first GPU) or `hip:N`.
pub fn device(text: &str) -> Result<Device, String> {
    match text {
        "auto" => Ok(Device::Auto),
        "cpu" => Ok(Device::Cpu),
        "hip" => Ok(Device::Hip(0)),
        _ => match text.strip_prefix("hip:").map(str::parse) {
            Some(Ok(number)) => Ok(Device::Hip(number)),
            _ => Err("use auto, cpu or hip[:N]".into()),
        },
    }
}

/// Drafts of a round: a number, or as many as pay.
pub fn mtp(text: &str) -> Result<Depth, String> {
    match text.parse() {
        _ if text == "auto" => Ok(Depth::Auto),
        Ok(depth) if depth <= MAX_DRAFTS => Ok(Depth::Fixed(depth)),
        _ => Err(format!("use auto or a whole number from 0 (off) to {MAX_DRAFTS}")),
    }
}

/// `ID=BIAS`; `-inf` bans the id.
pub fn logit_bias(text: &str) -> Result<(u32, f32), String> {
    let wrong = || "use ID=BIAS, for example 198=-2.5 (-inf bans the id)".to_string();
    let (id, bias) = text.split_once('=').ok_or_else(wrong)?;
    let bias: f32 = bias.parse().map_err(|_| wrong())?;
    Ok((id.parse().map_err(|_| wrong())?, bias))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_take_numbers_and_ranges_of_both_kinds() {
        assert_eq!(counts("0,8k").unwrap().0, [0, 8192]);
        assert_eq!(counts("1-4+1,512-4096*2").unwrap().0, [1, 2, 3, 4, 512, 1024, 2048, 4096]);
        for wrong in ["", "1-4", "1-4+0", "0-4*2", "1-4*1", "x"] {
            assert!(counts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_take_binary_suffixes_and_refuse_junk() {
        for (text, value) in [("0", 0), ("4096", 4096), ("32k", 32768), ("2K", 2048), ("1M", 1 << 20), ("1.5k", 1536)] {
            assert_eq!(size(text), Ok(value), "{text}");
        }
        for text in ["", "k", "-1", "1.5", "1e3x", "12T", "99999999999G", "nan", "infG"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_may_have_fractions_but_no_sign() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert!(["", "-1", "nan", "inf", "1e99", "5s"].iter().all(|text| seconds(text).is_err()));
    }

    #[test]
    fn memory_limits_are_bytes_or_a_share() {
        assert_eq!(memory_limit("1.5G"), Ok(MemoryLimit::Bytes(3 << 29)));
        assert_eq!(memory_limit("80%"), Ok(MemoryLimit::Percent(80.0)));
        for text in ["0", "0%", "101%", "%", "-5%", "x", "nan%"] {
            assert!(memory_limit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn devices_are_named_as_hip_numbers_them() {
        assert_eq!([device("hip"), device("hip:3")], [Ok(Device::Hip(0)), Ok(Device::Hip(3))]);
        for text in ["hip:", "hip:x", "hip:-1", "HIP", "gpu", "cuda"] {
            assert!(device(text).unwrap_err().contains("auto, cpu or hip"), "{text}");
        }
    }

    #[test]
    fn drafts_are_a_number_that_a_step_verifies_or_automatic() {
        assert_eq!(["0", "7", "auto"].map(mtp), [Ok(Depth::Fixed(0)), Ok(Depth::Fixed(7)), Ok(Depth::Auto)]);
        for text in ["8", "-1", "", "many"] {
            assert!(mtp(text).unwrap_err().contains("from 0 (off) to 7"), "{text}");
        }
    }

    #[test]
    fn automatic_choices_name_every_alternative() {
        assert_eq!("q8".parse(), Ok(Auto::Is(KvMode::Q8)));
        assert_eq!("auto".parse::<AutoKvBackend>(), Ok(Auto::Auto));
        assert_eq!("contiguous".parse(), Ok(Auto::Is(KvBackend::Legacy)));
        let error = "q4".parse::<AutoKvMode>().unwrap_err();
        assert!(["f32", "fp8", "q8", "auto"].iter().all(|name| error.contains(name)), "{error}");
    }
}
