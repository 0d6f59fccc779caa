package dev.llb;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.nio.file.attribute.UserPrincipal;
import java.util.Set;

/**
 * A folder for code that this process will run. No other user may be able to change its content.
 */
final class PrivateFolder {

    private static final Set<PosixFilePermission> OWN =
            PosixFilePermissions.fromString("rwx------");

    /** The bit of a folder in which only owners may rename files, as in {@code /tmp}. */
    private static final int STICKY = 01000;

    private PrivateFolder() {}

    /**
     * Creates {@code folder} in {@code parent} and closes it to others. Returns false if another
     * user owns it or could replace it, because a folder on the path belongs to that user or is
     * writable by others; or if no file in it can be executed.
     */
    static boolean make(Path parent, Path folder) throws IOException {
        Files.createDirectories(parent);
        if (!isPosix(parent)) {
            Files.createDirectories(folder);
            return true;
        }
        if (!Files.exists(folder, LinkOption.NOFOLLOW_LINKS)) {
            Files.createDirectories(folder, PosixFilePermissions.asFileAttribute(OWN));
        }
        Path probe = Files.createTempFile(folder, "owner", ".part");
        UserPrincipal user;
        try {
            user = Files.getOwner(probe);
        } finally {
            Files.deleteIfExists(probe);
        }
        PosixFileAttributes found = attributes(folder);
        if (!found.isDirectory() || !found.owner().equals(user) || !isClosed(parent, user)) {
            return false;
        }
        if (!found.permissions().equals(OWN)) {
            Files.setPosixFilePermissions(folder, OWN);
        }
        return canExecute(folder);
    }

    /** Whether a file there can be executed: it cannot where the file system is mounted so. */
    static boolean canExecute(Path folder) throws IOException {
        if (!isPosix(folder)) {
            return true;
        }
        Path probe = Files.createTempFile(
                folder, "exec", ".part", PosixFilePermissions.asFileAttribute(OWN));
        try {
            return Files.isExecutable(probe);
        } finally {
            Files.deleteIfExists(probe);
        }
    }

    /** Whether only the owner of {@code folder} can write to {@code file}. */
    static boolean isOfOwnerOf(Path file, Path folder) throws IOException {
        if (!isPosix(file)) {
            return true;
        }
        PosixFileAttributes found = attributes(file);
        return found.owner().equals(attributes(folder).owner()) && !isOpen(found);
    }

    /**
     * Whether only this user and root can replace what is in the folder, or any folder above it.
     */
    private static boolean isClosed(Path folder, UserPrincipal user) throws IOException {
        UserPrincipal root = Files.getOwner(folder.toRealPath().getRoot());
        for (Path at = folder.toRealPath(); at != null; at = at.getParent()) {
            PosixFileAttributes found = attributes(at);
            boolean own = found.owner().equals(user) || found.owner().equals(root);
            boolean sticky = ((int) Files.getAttribute(at, "unix:mode") & STICKY) != 0;
            if (!own || isOpen(found) && !sticky) {
                return false;
            }
        }
        return true;
    }

    /**
     * Whether others may write. A group with the owner's name is assumed to contain only the owner.
     */
    private static boolean isOpen(PosixFileAttributes found) {
        boolean group = found.permissions().contains(PosixFilePermission.GROUP_WRITE)
                && !found.group().getName().equals(found.owner().getName());
        return group || found.permissions().contains(PosixFilePermission.OTHERS_WRITE);
    }

    private static PosixFileAttributes attributes(Path path) throws IOException {
        return Files.readAttributes(
                path, PosixFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
    }

    private static boolean isPosix(Path path) {
        return path.getFileSystem().supportedFileAttributeViews().contains("unix");
    }
}
