//! Source lines for the positions in the runtime's sentences.
//!
//! Always true: `@{offset}` is replaced by the kernel's own line first, then the helpers it went through; without
//! debug information the offset stays. Not here: the sentences (`runtime/fault.cpp`).

use std::path::Path;

use addr2line::Loader;

/// Replaces each position in the text, which is about this library or program.
pub fn name_positions(text: &str, module: &Path) -> String {
    let Ok(loader) = Loader::new(module) else { return text.to_string() };
    let mut named = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("@{") {
        let Some(length) = rest[start..].find('}') else { break };
        let position = &rest[start..=start + length];
        let offset = u64::from_str_radix(&position[2..position.len() - 1], 16).ok();
        named.push_str(&rest[..start]);
        named.push_str(&offset.and_then(|offset| describe(&loader, offset)).unwrap_or_else(|| position.to_string()));
        rest = &rest[start + length + 1..];
    }
    named.push_str(rest);
    named
}

/// `norm.hip:20 (through gpu.h:55, gpu.h:47)`: the outermost line that is a kernel's, then inwards.
fn describe(loader: &Loader, offset: u64) -> Option<String> {
    let mut places = Vec::new();
    let mut frames = loader.find_frames(offset).ok()?;
    while let Ok(Some(frame)) = frames.next() {
        let function = frame.function.and_then(|name| name.raw_name().ok().map(|name| name.into_owned()));
        let Some(location) = frame.location else { continue };
        let (Some(file), Some(line)) = (location.file, location.line) else { continue };
        let file = Path::new(file).file_name()?.to_string_lossy().into_owned();
        // The entry point's only line is the macro's.
        if !function.is_some_and(|name| name.ends_with("__host")) && file != "host.h" {
            places.push(format!("{file}:{line}"));
        }
    }
    let kernel = places.pop()?;
    places.reverse();
    Some(if places.is_empty() { kernel } else { format!("{kernel} (through {})", places.join(", ")) })
}
