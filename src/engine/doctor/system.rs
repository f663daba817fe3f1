//! What the operating system says: driver, rights, kernel parameters, links, limits.
//!
//! Owns: reading /proc, /sys and /dev under a given root, and what each fact means for these machines.
//! Always true: what cannot be read is left out or said to be absent, never an error; advice is a command or a name.
//! Not here: HIP's view (`doctor`).

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::device::limits::{self, Limit};

/// How a finding is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be, or just a fact.
    Fine,
    /// Works, and costs speed or room.
    Warning,
    /// Keeps a GPU from being used.
    Broken,
}

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub name: String,
    /// What was seen.
    pub value: String,
    /// What it means.
    pub status: Status,
    /// What to do.
    pub advice: Option<String>,
}

fn fine(name: impl Into<String>, value: impl Into<String>) -> Finding {
    Finding { name: name.into(), value: value.into(), status: Status::Fine, advice: None }
}

fn warning(name: impl Into<String>, value: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { status: Status::Warning, advice: Some(advice.into()), ..fine(name, value) }
}

fn broken(name: impl Into<String>, value: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { status: Status::Broken, advice: Some(advice.into()), ..fine(name, value) }
}

/// A file's text without its line's end.
fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

/// Entries of a folder, sorted.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

/// A GPU as the kernel shows it under /sys/class/drm.
struct Card {
    name: String,
    folder: PathBuf,
    /// Shares the host's memory: its own part is small beside what it may borrow.
    shares_memory: bool,
}

/// Every fact, with paths under `root`.
pub fn findings(root: &Path) -> Vec<Finding> {
    let cards = cards(root);
    let mut all = driver(root);
    all.extend(access(root));
    all.extend(cards.iter().flat_map(|card| link(card).into_iter().chain(bar(card)).chain(level(card))));
    all.extend(iommu(root, &cards));
    all.extend(cards.iter().filter(|card| card.shares_memory).filter_map(|card| shared_memory(root, card)));
    all.extend(platform_profile(root));
    all.extend(open_files(limits::open_files()));
    all.extend(locked_memory(limits::locked_memory()));
    all
}

/// Kernel, amdgpu, and the architectures that the compute driver knows.
fn driver(root: &Path) -> Vec<Finding> {
    let mut found: Vec<Finding> =
        text(&root.join("proc/sys/kernel/osrelease")).map(|release| fine("kernel", release)).into_iter().collect();
    if !root.join("sys/module/amdgpu").exists() {
        found.push(broken(
            "amdgpu driver",
            "not loaded",
            "without an AMD GPU nothing is wrong; else load it (`sudo modprobe amdgpu`), or install a newer kernel that knows \
             the card",
        ));
        return found;
    }
    let version = text(&root.join("sys/module/amdgpu/version")).unwrap_or_else(|| "the kernel's own".into());
    found.push(fine("amdgpu driver", version));
    let nodes = entries(&root.join("sys/class/kfd/kfd/topology/nodes"));
    let archs: Vec<String> = nodes.iter().filter_map(|node| arch_of(&text(&node.join("properties"))?)).collect();
    found.push(match archs.is_empty() {
        false => fine("compute driver (kfd)", archs.join(", ")),
        true => {
            broken("compute driver (kfd)", "knows no GPU", "install a kernel whose amdgpu has compute for the card")
        }
    });
    found
}

/// `gfx_target_version 110501` is gfx1151: decimal major, minor and stepping, the last two written in hexadecimal.
fn arch_of(properties: &str) -> Option<String> {
    let version = properties.lines().find_map(|line| line.strip_prefix("gfx_target_version "))?;
    let version: u32 = version.trim().parse().ok().filter(|&version| version > 0)?;
    Some(format!("gfx{}{:x}{:x}", version / 10_000, version / 100 % 100, version % 100))
}

/// Whether this user may open the devices.
fn access(root: &Path) -> Vec<Finding> {
    let renders = entries(&root.join("dev/dri"));
    let renders = renders.into_iter().filter(|path| path.to_string_lossy().contains("renderD"));
    std::iter::once(root.join("dev/kfd"))
        .chain(renders)
        .map(|path| {
            let name = format!("/{}", path.strip_prefix(root).unwrap_or(&path).display());
            match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(_) => fine(name, "may be opened"),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => broken(
                    name,
                    "absent",
                    "the amdgpu driver makes it; in a container pass --device /dev/kfd --device /dev/dri",
                ),
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => broken(
                    name,
                    "may not be opened",
                    "join the group that owns it (`sudo usermod -aG render,video $USER`) and log in again",
                ),
                Err(error) => broken(name, error.to_string(), "see `dmesg` for what the driver says"),
            }
        })
        .collect()
}

/// AMD's GPUs.
fn cards(root: &Path) -> Vec<Card> {
    let is_card = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix("card").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    entries(&root.join("sys/class/drm"))
        .into_iter()
        .filter(is_card)
        .filter(|path| text(&path.join("device/vendor")).as_deref() == Some("0x1002"))
        .map(|path| {
            let folder = path.join("device");
            let own = number(&folder.join("mem_info_vram_total")).unwrap_or(0);
            let borrowed = number(&folder.join("mem_info_gtt_total")).unwrap_or(0);
            // A card with memory of its own has no `apu` clock domain either; the sizes are what every kernel shows.
            let shares_memory =
                own < borrowed && number(&folder.join("current_link_width")).is_none_or(|w| w == 16 && own < 4 << 30);
            Card { name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(), folder, shares_memory }
        })
        .collect()
}

/// A narrow or slow link. Speeds fall while a card is idle, so only the width is judged.
fn link(card: &Card) -> Option<Finding> {
    if card.shares_memory {
        return None;
    }
    let read = |name: &str| text(&card.folder.join(name));
    let (width, most) = (read("current_link_width")?, read("max_link_width")?);
    let speed = read("max_link_speed").unwrap_or_default();
    let name = format!("{}: PCIe link", card.name);
    let value = format!("x{width} of x{most}, at most {speed}");
    Some(match width == most {
        true => fine(name, value),
        false => {
            warning(name, value, "put the card into a slot with all lanes: weights and experts travel over this link")
        }
    })
}

/// A small window into the card's memory.
fn bar(card: &Card) -> Option<Finding> {
    let visible = number(&card.folder.join("mem_info_vis_vram_total"))?;
    let total = number(&card.folder.join("mem_info_vram_total"))?;
    let name = format!("{}: resizable BAR", card.name);
    let value = format!("the host sees {} of {}", gib(visible), gib(total));
    Some(match visible >= total {
        true => fine(name, value),
        false => warning(name, value, "enable Resizable BAR (and Above 4G Decoding) in the firmware's setup"),
    })
}

/// A fixed low clock.
fn level(card: &Card) -> Option<Finding> {
    let level = text(&card.folder.join("power_dpm_force_performance_level"))?;
    let name = format!("{}: performance level", card.name);
    Some(match level.as_str() {
        "low" => warning(name, level, "its clocks are held low: write `auto` to power_dpm_force_performance_level"),
        _ => fine(name, level),
    })
}

/// Address translation of every access, which costs most where the GPU's memory is the host's.
fn iommu(root: &Path, cards: &[Card]) -> Option<Finding> {
    if cards.is_empty() {
        return None;
    }
    let line = text(&root.join("proc/cmdline"))?;
    let has = |word: &str| line.split_whitespace().any(|parameter| parameter == word);
    let active = !entries(&root.join("sys/class/iommu")).is_empty();
    Some(if !active || has("amd_iommu=off") {
        fine("IOMMU", "off")
    } else if has("iommu=pt") {
        fine("IOMMU", "on, passed through (iommu=pt)")
    } else if cards.iter().any(|card| card.shares_memory) {
        warning(
            "IOMMU",
            "on, and translates",
            "add `iommu=pt` to the kernel's parameters; where nothing needs isolation `amd_iommu=off` is faster still",
        )
    } else {
        warning("IOMMU", "on, and translates", "add `iommu=pt` to the kernel's parameters")
    })
}

/// How much of the host's memory the GPU may use: Linux lends it half unless told otherwise.
fn shared_memory(root: &Path, card: &Card) -> Option<Finding> {
    let meminfo = text(&root.join("proc/meminfo"))?;
    let kib = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())?;
    let (host, lent) = (kib * 1024, number(&card.folder.join("mem_info_gtt_total"))?);
    let own = number(&card.folder.join("mem_info_vram_total")).unwrap_or(0);
    let name = format!("{}: memory it may use", card.name);
    let value = format!("{} lent of {}, and {} set aside", gib(lent), gib(host), gib(own));
    // A tenth is left to the system.
    let wanted = host / 10 * 9;
    if lent.max(own) >= wanted / 10 * 9 {
        return Some(fine(name, value));
    }
    let pages = wanted / 4096;
    Some(warning(
        name,
        value,
        format!(
            "add `ttm.pages_limit={pages} ttm.page_pool_size={pages}` to the kernel's parameters (older kernels: \
             `amdgpu.gttsize={}`), and set the firmware's share to its least",
            wanted >> 20
        ),
    ))
}

fn platform_profile(root: &Path) -> Option<Finding> {
    let profile = text(&root.join("sys/firmware/acpi/platform_profile"))?;
    Some(match profile.as_str() {
        "low-power" | "quiet" | "cool" => {
            warning("power profile", profile, "`powerprofilesctl set performance`: the APU's power limit follows it")
        }
        _ => fine("power profile", profile),
    })
}

fn open_files(limit: Option<Limit>) -> Option<Finding> {
    let limit = limit?;
    let shown = |bound: Option<u64>| bound.map_or("unlimited".into(), |bound| bound.to_string());
    let value = format!("{}, may be raised to {}", shown(limit.soft), shown(limit.hard));
    // hipfire raises the soft limit itself; below this a long context needs coarse segments.
    Some(match limit.hard.is_some_and(|hard| hard < 4096) {
        false => fine("open files", value),
        true => warning(
            "open files",
            value,
            "each mapped segment of a long context holds one: raise the hard limit (`ulimit -Hn 65536`, LimitNOFILE= of a \
             service)",
        ),
    })
}

fn locked_memory(limit: Option<Limit>) -> Option<Finding> {
    let soft = limit?.soft;
    let value = soft.map_or("unlimited".into(), gib);
    Some(match soft.is_some_and(|soft| soft < 64 << 20) {
        false => fine("locked memory", value),
        true => warning("locked memory", value, "pinned buffers may be refused: `ulimit -l unlimited` (LimitMEMLOCK=)"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine made of files.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new(files: &[(&str, &str)]) -> Machine {
            let machine = Machine(tempfile::tempdir().unwrap());
            for (path, text) in files {
                let path = machine.0.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{text}\n")).unwrap();
            }
            machine
        }
        fn finding(&self, name: &str) -> Finding {
            let all = findings(self.0.path());
            all.iter().find(|finding| finding.name.contains(name)).unwrap_or_else(|| panic!("{name}: {all:?}")).clone()
        }
    }

    const HALO: [(&str, &str); 10] = [
        ("sys/module/amdgpu/refcnt", "3"),
        ("sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 32\ngfx_target_version 0"),
        ("sys/class/kfd/kfd/topology/nodes/1/properties", "simd_count 80\ngfx_target_version 110501"),
        ("sys/class/drm/card1/device/vendor", "0x1002"),
        ("sys/class/drm/card1-DP-1/device/vendor", "0x1002"),
        ("sys/class/drm/card1/device/mem_info_vram_total", "536870912"),
        ("sys/class/drm/card1/device/mem_info_gtt_total", "66571993088"),
        ("sys/class/iommu/ivhd0/name", "ivhd0"),
        ("proc/meminfo", "MemTotal:       130023424 kB"),
        ("sys/firmware/acpi/platform_profile", "low-power"),
    ];

    fn halo(cmdline: &str) -> Machine {
        Machine::new(&[&HALO[..], &[("proc/cmdline", cmdline)]].concat())
    }

    #[test]
    fn a_strix_halo_as_it_comes_is_told_what_costs_speed_and_room() {
        let machine = halo("root=/dev/nvme0n1p2 quiet");
        assert_eq!(machine.finding("kfd)").value, "gfx1151");
        let iommu = machine.finding("IOMMU");
        assert!(iommu.status == Status::Warning && iommu.advice.unwrap().contains("amd_iommu=off"));
        let memory = machine.finding("memory it may use");
        assert_eq!(memory.value, "62.0 GiB lent of 124.0 GiB, and 0.5 GiB set aside");
        let advice = memory.advice.unwrap();
        assert!(advice.contains("ttm.pages_limit=29255") && advice.contains("amdgpu.gttsize=11427"), "{advice}");
        assert_eq!(machine.finding("power profile").status, Status::Warning);
        assert_eq!(machine.finding("/dev/kfd").value, "absent");
    }

    #[test]
    fn a_machine_that_is_set_up_is_left_in_peace() {
        assert_eq!(halo("quiet iommu=pt").finding("IOMMU").status, Status::Fine);
        assert_eq!(halo("amd_iommu=off").finding("IOMMU").value, "off");
    }

    #[test]
    fn a_card_in_a_narrow_slot_with_a_small_window_is_told_so() {
        let folder = "sys/class/drm/card0/device";
        let files = [
            ("vendor", "0x1002"),
            ("mem_info_vram_total", "34208743424"),
            ("mem_info_vis_vram_total", "268435456"),
            ("mem_info_gtt_total", "67000000000"),
            ("current_link_width", "4"),
            ("max_link_width", "16"),
            ("max_link_speed", "32.0 GT/s PCIe"),
            ("power_dpm_force_performance_level", "low"),
        ];
        let files: Vec<(String, &str)> = files.iter().map(|(name, text)| (format!("{folder}/{name}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        let machine = Machine::new(&files);
        let link = machine.finding("PCIe link");
        assert_eq!((link.value.as_str(), link.status), ("x4 of x16, at most 32.0 GT/s PCIe", Status::Warning));
        assert!(machine.finding("resizable BAR").advice.unwrap().contains("Resizable BAR"));
        assert_eq!(machine.finding("performance level").status, Status::Warning);
        assert_eq!(machine.finding("amdgpu driver").status, Status::Broken);
        assert!(findings(machine.0.path()).iter().all(|finding| !finding.name.contains("may use")));
    }

    #[test]
    fn versions_of_the_compute_driver_read_as_architectures() {
        let arch = |version: u32| arch_of(&format!("x 1\ngfx_target_version {version}\ny 2"));
        assert_eq!([arch(110_501), arch(120_001), arch(90_010)].map(Option::unwrap), ["gfx1151", "gfx1201", "gfx90a"]);
        assert_eq!((arch(0), arch_of("")), (None, None));
    }

    #[test]
    fn limits_are_judged_by_what_can_be_raised() {
        let limit = |soft, hard| Some(Limit { soft, hard });
        assert_eq!(open_files(limit(Some(1024), Some(524_288))).unwrap().status, Status::Fine);
        assert_eq!(open_files(limit(Some(1024), Some(1024))).unwrap().status, Status::Warning);
        assert_eq!(open_files(limit(None, None)).unwrap().status, Status::Fine);
        assert_eq!(locked_memory(limit(Some(65_536), None)).unwrap().status, Status::Warning);
        assert_eq!(locked_memory(limit(None, None)).unwrap().status, Status::Fine);
    }
}
