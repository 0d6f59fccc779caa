//! Headers of model files whose templates are used, cached while the files stay as they are. A
//! vocabulary takes milliseconds to read through, and a template request needs it each time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::ModelHeader;
use crate::error::Result;
use crate::process::Shared;
use crate::regular_file::FileIdentity;

/// How many headers are cached. A header takes less than a megabyte.
const MAX_KEPT: usize = 8;

/// The header of a model file, with what its vocabulary says about texts of a chat.
pub struct TemplateHeader {
    /// The header.
    pub header: ModelHeader,
    /// The texts of the control tokens. Empty if the file has no token types.
    pub control_tokens: Vec<String>,
    /// The texts of the control tokens and the user-defined tokens.
    pub special_tokens: Vec<String>,
}

struct KeptHeader {
    path: PathBuf,
    file: FileIdentity,
    header: Arc<TemplateHeader>,
}

/// The last one was used last.
static KEPT: Shared<Vec<KeptHeader>> = Shared::new(Vec::new());

impl TemplateHeader {
    /// Returns the header of a file, from the cache if the file has not changed. For a split model,
    /// the tokens are those of the first part.
    ///
    /// # Errors
    /// As for [`ModelHeader::read_file`].
    pub fn of_file(path: &Path) -> Result<Arc<TemplateHeader>> {
        // Without one, reading fails too, and says why.
        let file = FileIdentity::of(path).ok();
        if let Some(header) = file.as_ref().and_then(|file| take(path, file)) {
            return Ok(header);
        }
        let begun = SystemTime::now();
        let header = Arc::new(TemplateHeader {
            header: ModelHeader::read_file(path)?,
            control_tokens: ModelHeader::control_tokens(path)?,
            special_tokens: ModelHeader::special_tokens(path)?,
        });
        if let Some(file) = file.filter(|file| file.is_settled(begun)) {
            keep(KeptHeader { path: path.to_owned(), file, header: Arc::clone(&header) });
        }
        Ok(header)
    }
}

/// The cached header of a file, which is then the last one that was used.
fn take(path: &Path, file: &FileIdentity) -> Option<Arc<TemplateHeader>> {
    let mut kept = KEPT.lock();
    let index = kept.iter().position(|kept| kept.path == path)?;
    let known = kept.remove(index);
    let header = (known.file == *file).then(|| Arc::clone(&known.header))?;
    kept.push(known);
    Some(header)
}

fn keep(header: KeptHeader) {
    let mut kept = KEPT.lock();
    kept.retain(|kept| kept.path != header.path);
    if kept.len() == MAX_KEPT {
        kept.remove(0);
    }
    kept.push(header);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs::{File, FileTimes};
    use std::time::Duration;

    use super::*;
    use crate::error::Code;
    use crate::gguf::gguf_writer::GgufWriter;

    fn write(path: &Path, template: &str, modified: SystemTime) {
        let writer = GgufWriter::new().metadata("general.architecture", "llama");
        let writer = writer.metadata("tokenizer.chat_template", template);
        std::fs::write(path, writer.to_bytes()).unwrap();
        let times = FileTimes::new().set_modified(modified);
        File::options().write(true).open(path).unwrap().set_times(times).unwrap();
    }

    #[test]
    fn a_header_is_read_again_when_its_file_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.gguf");
        let template = |header: &TemplateHeader| header.header.chat_template().map(str::to_owned);
        let (now, minute) = (SystemTime::now(), Duration::from_secs(60));
        write(&path, "one", now - minute);
        let first = TemplateHeader::of_file(&path).unwrap();
        assert_eq!(template(&first).as_deref(), Some("one"));
        assert!(Arc::ptr_eq(&first, &TemplateHeader::of_file(&path).unwrap()));
        // The same size, and another time.
        write(&path, "two", now - minute / 2);
        let second = TemplateHeader::of_file(&path).unwrap();
        assert_eq!(template(&second).as_deref(), Some("two"));
        // With a time that is not over, it may change again without another one.
        write(&path, "six", now + minute);
        let third = TemplateHeader::of_file(&path).unwrap();
        assert_eq!(template(&third).as_deref(), Some("six"));
        assert!(!Arc::ptr_eq(&third, &TemplateHeader::of_file(&path).unwrap()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(TemplateHeader::of_file(&path).err().unwrap().code(), Code::ModelNotFound);
    }
}
