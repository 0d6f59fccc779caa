#!/bin/sh
# scripts/release/central.sh MAVEN: uploads the Maven repository in the folder MAVEN to Maven
# Central's portal as a draft, which a person then publishes or drops there.
#
#   CENTRAL_USERNAME, CENTRAL_PASSWORD   a user token of the portal
#   GPG_PRIVATE_KEY                      signs the files; its public half is on a key server
#
# With CENTRAL_BUNDLE=FILE, the bundle is written there and not uploaded.
set -eu

maven=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GNUPGHOME="$work/keys"
mkdir -m 700 "$GNUPGHOME"
echo "$GPG_PRIVATE_KEY" | gpg --batch --quiet --import

cp -R "$maven" "$work/bundle"
# The portal wants neither Maven's list of versions nor checksums of signatures.
find "$work/bundle" -name 'maven-metadata*' -delete
find "$work/bundle" -type f ! -name '*.md5' ! -name '*.sha1' ! -name '*.sha256' ! -name '*.sha512' \
    -exec gpg --batch --yes --quiet --armor --detach-sign {} \;
bundle=${CENTRAL_BUNDLE:-$work/bundle.zip}
(cd "$work/bundle" && python3 -m zipfile -c "$work/bundle.zip" ./*)
[ "$bundle" = "$work/bundle.zip" ] || cp "$work/bundle.zip" "$bundle"
[ -z "${CENTRAL_BUNDLE:-}" ] || exit 0

token=$(printf '%s:%s' "$CENTRAL_USERNAME" "$CENTRAL_PASSWORD" | base64 -w 0)
echo "header = \"Authorization: Bearer $token\"" >"$work/curl"
curl --fail-with-body --silent --show-error --config "$work/curl" \
    --form bundle=@"$work/bundle.zip" \
    "https://central.sonatype.com/api/v1/publisher/upload?publishingType=USER_MANAGED"
echo
