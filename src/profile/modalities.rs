//! What a model takes besides text: the projector beside its file, by the headers of both files.

use std::path::Path;

use serde_json::Value;

use crate::api::Modality;
use crate::diagnostic::Diagnostic;
use crate::error::{Error, Result};
use crate::gguf::{ModelHeader, ProjectorHeader, projector_beside};

/// Sets `input_modalities` and `projector` in the reply of `llb_model_info`. Returns a finding about
/// a projector that a chat would refuse.
pub(super) fn add_to(info: &mut Value, path: &Path, model: &ModelHeader) -> Option<Diagnostic> {
    match beside(path, model) {
        Ok(None) => None,
        Ok(Some((projector, header))) => {
            let media = header.modalities().map(Modality::as_str);
            info["input_modalities"] = std::iter::once("text").chain(media).collect();
            info["projector"] = projector.into();
            None
        }
        Err(error) => Some(Diagnostic::new("projector_unusable", error.message())),
    }
}

/// The projector that `projector` "auto" stands for, if the model can use it.
fn beside(path: &Path, model: &ModelHeader) -> Result<Option<(String, ProjectorHeader)>> {
    let Some(projector) = projector_beside(path)? else { return Ok(None) };
    if !cfg!(feature = "media") {
        let problem = "this llb was built without its feature `media`";
        return Err(Error::invalid("projector", problem));
    }
    let header = ProjectorHeader::read_file(&projector)?;
    header.check_fits(model).map_err(|error| error.about(projector.display()))?;
    Ok(Some((projector.to_string_lossy().into_owned(), header)))
}
