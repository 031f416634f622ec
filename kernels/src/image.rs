//! Which image a device gets.

/// A module to be loaded by `cuModuleLoadData`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    /// `sm_120`, or `compute_80` for PTX, which the driver compiles when it loads it.
    pub name: &'static str,
    /// Its bytes; PTX ends with a zero.
    pub bytes: &'static [u8],
}

/// There is none for so old a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected compute capability 8.0 or later, found {0}.{1}")]
pub struct NoImage(pub u32, pub u32);

macro_rules! image {
    ($name:literal, $file:literal) => {
        Image { name: $name, bytes: include_bytes!(concat!("../images/", $file)) }
    };
}

/// By compute capability, the newest first.
static CUBINS: [((u32, u32), Image); 5] = [
    ((12, 0), image!("sm_120", "sm_120.cubin")),
    ((10, 0), image!("sm_100", "sm_100.cubin")),
    ((9, 0), image!("sm_90", "sm_90.cubin")),
    ((8, 9), image!("sm_89", "sm_89.cubin")),
    ((8, 0), image!("sm_80", "sm_80.cubin")),
];

static PTX: Image = image!("compute_80", "compute_80.ptx");

impl Image {
    /// For a device of that compute capability: code for its own generation, not newer than the device; else PTX.
    ///
    /// # Errors
    /// Below 8.0.
    pub fn for_capability(major: u32, minor: u32) -> Result<Self, NoImage> {
        if major < 8 {
            return Err(NoImage(major, minor));
        }
        let fits = |(its, _): &&((u32, u32), Self)| its.0 == major && its.1 <= minor;
        Ok(CUBINS.iter().find(fits).map_or(PTX, |(_, image)| *image))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(capability: (u32, u32), expected: &str) {
        assert_eq!(Image::for_capability(capability.0, capability.1).unwrap().name, expected);
    }

    #[test]
    fn a_device_gets_code_of_its_generation_that_is_not_newer() {
        check((12, 0), "sm_120"); // RTX PRO 6000 Blackwell
        check((12, 1), "sm_120"); // GB10
        check((10, 3), "sm_100"); // B300
        check((9, 0), "sm_90"); // H100
        check((8, 9), "sm_89"); // L40
        check((8, 6), "sm_80"); // A40
        check((8, 0), "sm_80"); // A100
        check((11, 0), "compute_80"); // Thor
        check((13, 0), "compute_80");
    }

    #[test]
    fn older_devices_are_told() {
        let error = Image::for_capability(7, 5).unwrap_err();
        assert_eq!(error.to_string(), "expected compute capability 8.0 or later, found 7.5");
    }

    /// What the driver tells them by.
    #[test]
    fn images_are_elf_or_text_that_ends() {
        for (_, image) in &CUBINS {
            assert!(image.bytes.starts_with(b"\x7fELF"), "{}", image.name);
        }
        assert!(PTX.bytes.ends_with(b"\0") && !PTX.bytes[..PTX.bytes.len() - 1].contains(&0));
    }
}
