//! A bzImage opened: its ELF file, and a section of it.

use std::io::Read as _;

use thiserror::Error;

/// The most bytes that a kernel unpacks to.
pub const KERNEL_MAX: usize = 512 << 20;

/// A file that is no kernel, or one that cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum KernelError {
    /// Not the format of x86's boot protocol.
    #[error("it is no bzImage of Linux for x86 (boot protocol 2.08 or later)")]
    NoImage,
    /// Packed by a method that is not read here.
    #[error("its ELF file is packed by {0}; only gzip and zstd are read")]
    Packing(&'static str),
    /// The packed part is damaged.
    #[error("its packed part is damaged: {0}")]
    Damaged(String),
    /// Larger than [`KERNEL_MAX`].
    #[error("it unpacks to more than {KERNEL_MAX} bytes (KERNEL_MAX)")]
    Bound,
}

/// The ELF file in a bzImage (Linux, Documentation/arch/x86/boot.rst).
///
/// # Errors
/// See [`KernelError`].
pub fn unpack(image: &[u8]) -> Result<Vec<u8>, KernelError> {
    let version = u16_at(image, 0x206).filter(|_| image.get(0x202..0x206) == Some(b"HdrS"));
    if version.is_none_or(|version| version < 0x208) {
        return Err(KernelError::NoImage);
    }
    let sectors = image.get(0x1f1).map_or(4, |&sectors| if sectors == 0 { 4 } else { usize::from(sectors) });
    let packed = u32_at(image, 0x248).zip(u32_at(image, 0x24c)).and_then(|(offset, length)| {
        let begin = (sectors + 1) * 512 + offset as usize;
        image.get(begin..begin + length as usize)
    });
    let packed = packed.ok_or(KernelError::NoImage)?;
    match packed {
        [0x1f, 0x8b, ..] => read(flate2::read::GzDecoder::new(packed)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(packed);
            read(decoder.map_err(|error| KernelError::Damaged(error.to_string()))?)
        }
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Err(KernelError::Packing("xz")),
        [0x02, 0x21, 0x4c, 0x18, ..] => Err(KernelError::Packing("lz4")),
        [0x5d, 0, 0, ..] => Err(KernelError::Packing("lzma")),
        [b'B', b'Z', b'h', ..] => Err(KernelError::Packing("bzip2")),
        _ => Err(KernelError::Packing("an unknown method")),
    }
}

fn read(unpacked: impl std::io::Read) -> Result<Vec<u8>, KernelError> {
    let mut bytes = Vec::new();
    let mut unpacked = unpacked.take(KERNEL_MAX as u64 + 1);
    unpacked.read_to_end(&mut bytes).map_err(|error| KernelError::Damaged(error.to_string()))?;
    if bytes.len() > KERNEL_MAX { Err(KernelError::Bound) } else { Ok(bytes) }
}

/// A section of a 64-bit little-endian ELF file, by its name.
#[must_use]
pub fn section<'a>(elf: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let header = |number: u16| -> Option<(usize, &'a [u8])> {
        let size = usize::from(u16_at(elf, 0x3a)?);
        let at = usize::try_from(u64_at(elf, 0x28)?).ok()?.checked_add(usize::from(number) * size)?;
        let begin = usize::try_from(u64_at(elf, at.checked_add(0x18)?)?).ok()?;
        let length = usize::try_from(u64_at(elf, at + 0x20)?).ok()?;
        // A section without bytes in the file reads as empty.
        Some((u32_at(elf, at)? as usize, elf.get(begin..begin.checked_add(length)?).unwrap_or_default()))
    };
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (_, names) = header(u16_at(elf, 0x3e)?)?;
    let named = |at: usize| names.get(at..)?.split(|&byte| byte == 0).next();
    (0..u16_at(elf, 0x3c)?)
        .filter_map(header)
        .find(|&(at, _)| named(at) == Some(name.as_bytes()))
        .map(|(_, bytes)| bytes)
}

/// Whether an ELF file of x86-64 runs without a dynamic linker, because no interpreter is named.
#[must_use]
pub fn is_static(elf: &[u8]) -> bool {
    const INTERPRETER: u32 = 3;
    let interpreter = || -> Option<bool> {
        let (at, size) = (usize::try_from(u64_at(elf, 0x20)?).ok()?, usize::from(u16_at(elf, 0x36)?));
        let count = usize::from(u16_at(elf, 0x38)?);
        Some((0..count).any(|number| at.checked_add(number * size).and_then(|at| u32_at(elf, at)) == Some(INTERPRETER)))
    };
    let x86_64 = u16_at(elf, 0x12) == Some(62);
    elf.get(..6) == Some(b"\x7fELF\x02\x01") && x86_64 && interpreter() == Some(false)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_kernel_is_named_so() {
        assert_eq!(unpack(b"hello"), Err(KernelError::NoImage));
        let mut image = vec![0; 4096];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&[0x0f, 0x02]);
        image[0x1f1] = 1;
        image[0x24c] = 6;
        for (magic, method) in [(&b"\xfd7zXZ\0"[..], "xz"), (b"BZh91A", "bzip2"), (b"??????", "an unknown method")] {
            image[1024..1030].copy_from_slice(magic);
            assert_eq!(unpack(&image), Err(KernelError::Packing(method)));
        }
        image[1024..1030].copy_from_slice(&[0x28, 0xb5, 0x2f, 0xfd, 0xff, 0xff]);
        assert!(matches!(unpack(&image), Err(KernelError::Damaged(_))));
    }

    /// This test program is linked dynamically.
    #[test]
    fn a_program_with_an_interpreter_is_not_static() {
        assert!(!is_static(&std::fs::read("/proc/self/exe").unwrap()));
        assert!(!is_static(b"#!/bin/sh\n"));
        assert_eq!(section(&std::fs::read("/proc/self/exe").unwrap(), ".nothing"), None);
        assert!(section(&std::fs::read("/proc/self/exe").unwrap(), ".text").is_some_and(|text| !text.is_empty()));
    }
}
