//! The create option `projector`.

use super::fields::{Fields, expected};
use crate::error::Result;

/// Which file encodes pictures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectorChoice {
    /// The one beside the model file whose name contains `mmproj`, if there is one.
    Auto,
    /// The file at this path.
    Path(String),
}

impl ProjectorChoice {
    pub(crate) fn read(fields: &mut Fields) -> Result<Option<ProjectorChoice>> {
        Ok(match fields.string("projector")? {
            None => None,
            Some("auto") => Some(ProjectorChoice::Auto),
            Some("") => {
                let problem = expected("a path or \"auto\"", &"".into());
                return Err(fields.invalid("projector", problem));
            }
            Some(path) => Some(ProjectorChoice::Path(path.to_owned())),
        })
    }
}
