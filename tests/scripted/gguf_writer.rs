//! Writes metadata and tensors to a GGUF file, for tests and test models.
//!
//! The file is little-endian and of version 3, or 2, which differs only in the number. The content
//! is not checked, so tests can write invalid files. Unit tests of the crate and fuzz targets include
//! this file by its path.

#![allow(dead_code, unreachable_pub, reason = "each user of this module uses a part of it")]

use std::io::{self, Write};

use llb::gguf::{GgufValue, ValueType};

/// Collects the content of a file and writes it.
pub struct GgufWriter {
    version: u32,
    alignment: u32,
    metadata: Vec<(String, GgufValue)>,
    tensors: Vec<Tensor>,
}

struct Tensor {
    name: String,
    shape: Vec<u64>,
    type_number: u32,
    data: Vec<u8>,
}

impl Default for GgufWriter {
    fn default() -> Self {
        GgufWriter::new()
    }
}

impl GgufWriter {
    /// Creates an empty file of version 3, aligned to 32 bytes.
    pub fn new() -> Self {
        GgufWriter { version: 3, alignment: 32, metadata: Vec::new(), tensors: Vec::new() }
    }

    /// Sets the version number.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Sets the alignment, a power of two, and adds `general.alignment`.
    #[must_use]
    pub fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = alignment;
        self.metadata("general.alignment", alignment)
    }

    /// Adds an entry. All elements of an array must have its element type.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<GgufValue>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Adds a tensor of floats. The first extent of the shape is the row length.
    #[must_use]
    pub fn tensor(self, name: impl Into<String>, shape: &[u64], elements: &[f32]) -> Self {
        let data = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
        self.tensor_bytes(name, shape, 0, data)
    }

    /// Adds a tensor of any ggml type.
    #[must_use]
    pub fn tensor_bytes(
        mut self,
        name: impl Into<String>,
        shape: &[u64],
        type_number: u32,
        data: Vec<u8>,
    ) -> Self {
        self.tensors.push(Tensor { name: name.into(), shape: shape.to_vec(), type_number, data });
        self
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut header = b"GGUF".to_vec();
        header.extend_from_slice(&self.version.to_le_bytes());
        header.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        header.extend_from_slice(&(self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_string(&mut header, key);
            put_type(&mut header, value.value_type());
            put_value(&mut header, value);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            put_string(&mut header, &tensor.name);
            header.extend_from_slice(&(tensor.shape.len() as u32).to_le_bytes());
            tensor.shape.iter().for_each(|extent| header.extend_from_slice(&extent.to_le_bytes()));
            header.extend_from_slice(&tensor.type_number.to_le_bytes());
            header.extend_from_slice(&(offset as u64).to_le_bytes());
            offset += self.padded(tensor.data.len());
        }
        header.resize(self.padded(header.len()), 0);
        out.write_all(&header)?;
        for tensor in &self.tensors {
            out.write_all(&tensor.data)?;
            out.write_all(&vec![0; self.padded(tensor.data.len()) - tensor.data.len()])?;
        }
        Ok(())
    }

    /// The file as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes).expect("writing to a vector does not fail");
        bytes
    }

    fn padded(&self, length: usize) -> usize {
        length.next_multiple_of(self.alignment.max(1) as usize)
    }
}

fn put_type(out: &mut Vec<u8>, value_type: ValueType) {
    out.extend_from_slice(&(value_type as u32).to_le_bytes());
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &GgufValue) {
    match value {
        GgufValue::U8(v) => out.push(*v),
        GgufValue::I8(v) => out.extend_from_slice(&v.to_le_bytes()),
        GgufValue::U16(v) => out.extend_from_slice(&v.to_le_bytes()),
        GgufValue::I16(v) => out.extend_from_slice(&v.to_le_bytes()),
        GgufValue::U32(v) => out.extend_from_slice(&v.to_le_bytes()),
        GgufValue::I32(v) => out.extend_from_slice(&v.to_le_bytes()),
        GgufValue::F32(v) => out.extend_from_slice(&v.to_le_bytes()),
        GgufValue::Bool(v) => out.push(u8::from(*v)),
        GgufValue::String(text) => put_string(out, text),
        GgufValue::U64(v) => out.extend_from_slice(&v.to_le_bytes()),
        GgufValue::I64(v) => out.extend_from_slice(&v.to_le_bytes()),
        GgufValue::F64(v) => out.extend_from_slice(&v.to_le_bytes()),
        GgufValue::Array(element, items) => {
            put_type(out, *element);
            out.extend_from_slice(&(items.len() as u64).to_le_bytes());
            items.iter().for_each(|item| put_value(out, item));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_for_byte() {
        let bytes = GgufWriter::new().metadata("a", 7_u16).tensor("t", &[1], &[1.0]).to_bytes();
        let mut expected = b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0".to_vec();
        expected.extend_from_slice(b"\x01\0\0\0\0\0\0\0a\x02\0\0\0\x07\0");
        expected.extend_from_slice(
            b"\x01\0\0\0\0\0\0\0t\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        );
        expected.resize(96, 0);
        expected.extend_from_slice(&[0, 0, 0x80, 0x3F]);
        expected.resize(128, 0);
        assert_eq!(bytes, expected);
    }
}
