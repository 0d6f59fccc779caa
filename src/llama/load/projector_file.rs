//! The file of the option `projector`, before it is loaded.

use std::path::Path;

use crate::api::{CreateOptions, ProjectorChoice};
use crate::error::{Code, Error, Result};
use crate::gguf::{ModelHeader, ProjectorHeader, projector_beside};

/// The options with the path of the projector that `projector` "auto" finds beside the model. `None`
/// if they name none, or a path.
///
/// # Errors
/// `INVALID_REQUEST` if there are several.
pub fn with_projector_beside(
    options: &CreateOptions,
    model: Option<&str>,
) -> Result<Option<CreateOptions>> {
    let (Some(ProjectorChoice::Auto), Some(model)) = (&options.loading.projector, model) else {
        return Ok(None);
    };
    let found = projector_beside(Path::new(model))?;
    let choice = found.map(|path| ProjectorChoice::Path(path.to_string_lossy().into_owned()));
    let mut options = options.clone();
    options.loading.projector = choice;
    Ok(Some(options))
}

/// Reads the header of a projector, and checks that it belongs to the model.
///
/// # Errors
/// `INVALID_REQUEST` about the option `projector`.
pub fn fitting_projector(path: &str, model: &ModelHeader) -> Result<ProjectorHeader> {
    if !cfg!(feature = "media") {
        let problem = "this llb was built without its feature `media`";
        return Err(Error::invalid("projector", problem));
    }
    let projector = ProjectorHeader::read_file(Path::new(path)).map_err(projector_error)?;
    let fits = projector.check_fits(model);
    fits.map_err(|error| projector_error(error.about(path)))?;
    Ok(projector)
}

/// The tokens that a batch must hold for the pictures of the projector. One that cannot be read is
/// refused elsewhere.
pub(super) fn places_in_one_batch(options: &CreateOptions) -> Option<u32> {
    let Some(ProjectorChoice::Path(path)) = &options.loading.projector else { return None };
    ProjectorHeader::read_file(Path::new(path)).ok()?.places_in_one_batch()
}

/// The error about the option.
pub(crate) fn projector_error(error: Error) -> Error {
    match error.code() {
        Code::InvalidRequest => error,
        _ => Error::invalid("projector", error.message()).caused_by(error),
    }
}
