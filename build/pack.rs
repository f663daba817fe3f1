//! Writes a pack: a gzipped tar with `manifest.json` first and the code objects after it.
//!
//! Always true: no time, user or machine is in it, so the same objects give the same bytes.

use std::error::Error;
use std::io::Write;

use super::manifest::Manifest;

/// The archive's bytes; `objects` are in the manifest's order.
pub fn archive(manifest: &Manifest, objects: &[Vec<u8>]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut append = |path: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, bytes)
    };
    append("manifest.json", &serde_json::to_vec_pretty(manifest)?)?;
    for (object, bytes) in manifest.objects.iter().zip(objects) {
        append(&object.path, bytes)?;
    }
    let mut gzip = flate2::GzBuilder::new().write(Vec::new(), flate2::Compression::best());
    gzip.write_all(&tar.into_inner()?)?;
    Ok(gzip.finish()?)
}
