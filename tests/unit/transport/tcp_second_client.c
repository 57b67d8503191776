/* SPDX-License-Identifier: Apache-2.0
 * See tcp_second_client.h. */
#include "unit/transport/tcp_second_client.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

enum { HEADER = 8, TAG = 16, BODY_MAX = 65536, CREDIT = 2 << 20 };

struct direction {
  unsigned char key[32], iv[32];
  uint64_t number;
};

struct talk {
  const struct second_client* client;
  unsigned char psk[32];
  struct direction sends, receives;
};

static void expand(const unsigned char key[32], const char* info, size_t bytes,
                   unsigned char out[32]) {
  unsigned char text[512];
  unsigned int made = 32;
  memcpy(text, info, bytes);
  text[bytes] = 1;
  HMAC(EVP_sha256(), key, 32, text, bytes + 1, out, &made);
}

static void extract(const void* salt, size_t salt_bytes, const void* input, size_t bytes,
                    unsigned char out[32]) {
  unsigned int made = 32;
  HMAC(EVP_sha256(), salt, (int)salt_bytes, input, bytes, out, &made);
}

static void make_psk(struct talk* talk) {
  const struct second_client* client = talk->client;
  unsigned char salt[8], extracted[32], job_key[32];
  char info[512] = "libparallax tcp 1 psk ";
  for (int i = 0; i < 8; ++i) salt[i] = (unsigned char)(client->job >> 8 * i);
  extract(salt, sizeof salt, client->secret, strlen(client->secret), extracted);
  expand(extracted, "libparallax tcp 1 job", 21, job_key);
  extract(client->salt, 32, job_key, 32, extracted);
  strcat(info, client->identity);
  expand(extracted, info, strlen(info), talk->psk);
}

static int use_psk(SSL* ssl, const EVP_MD* md, const unsigned char** id, size_t* id_bytes,
                   SSL_SESSION** session) {
  static const unsigned char suite[] = {0x13, 0x01};
  const struct talk* talk = SSL_get_app_data(ssl);
  (void)md;
  *session = SSL_SESSION_new();
  SSL_SESSION_set1_master_key(*session, talk->psk, sizeof talk->psk);
  SSL_SESSION_set_cipher(*session, SSL_CIPHER_find(ssl, suite));
  SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
  *id = (const unsigned char*)talk->client->identity;
  *id_bytes = strlen(talk->client->identity);
  return 1;
}

static void keys_of(const unsigned char secret[32], struct direction* direction) {
  expand(secret, "libparallax tcp 1 key", 21, direction->key);
  expand(secret, "libparallax tcp 1 iv", 20, direction->iv);
  direction->number = 0;
}

static int shake_hands(struct talk* talk) {
  unsigned char secrets[64];
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL* ssl;
  int good;
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
  SSL_CTX_set_psk_use_session_callback(context, use_psk);
  ssl = SSL_new(context);
  SSL_set_app_data(ssl, talk);
  SSL_set_fd(ssl, talk->client->socket);
  good = SSL_connect(ssl) == 1 && SSL_session_reused(ssl) == 1 &&
         SSL_export_keying_material(ssl, secrets, sizeof secrets, "EXPORTER-libparallax-tcp-1", 26,
                                    NULL, 0, 0) == 1;
  SSL_free(ssl);
  SSL_CTX_free(context);
  if (!good) return 0;
  keys_of(secrets, &talk->sends);
  keys_of(secrets + 32, &talk->receives);
  return 1;
}

/* One call of the cipher: what is in clear, what is not, and the tag. */
static int crypt(struct direction* direction, int seals, const unsigned char* clear,
                 size_t clear_bytes, unsigned char* body, size_t bytes, unsigned char* tag) {
  EVP_CIPHER_CTX* cipher = EVP_CIPHER_CTX_new();
  unsigned char nonce[12], nothing[16];
  int made = 0, good;
  memcpy(nonce, direction->iv, sizeof nonce);
  for (int i = 0; i < 8; ++i) nonce[11 - i] ^= (unsigned char)(direction->number >> 8 * i);
  ++direction->number;
  EVP_CipherInit_ex(cipher, EVP_aes_128_gcm(), NULL, direction->key, nonce, seals);
  if (!seals) EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_SET_TAG, TAG, tag);
  EVP_CipherUpdate(cipher, NULL, &made, clear, (int)clear_bytes);
  if (bytes > 0) EVP_CipherUpdate(cipher, body, &made, body, (int)bytes);
  good = EVP_CipherFinal_ex(cipher, nothing, &made) == 1;
  if (seals) EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, TAG, tag);
  EVP_CIPHER_CTX_free(cipher);
  return good;
}

static int protect(struct talk* talk, struct direction* direction, int seals, unsigned char* frame,
                   size_t bytes) {
  if (talk->client->security == 2) return 1;
  if (talk->client->security == 1) {
    return crypt(direction, seals, frame, HEADER + bytes, NULL, 0, frame + HEADER + bytes);
  }
  return crypt(direction, seals, frame, HEADER, frame + HEADER, bytes, frame + HEADER + bytes);
}

static size_t tag_bytes(const struct talk* talk) { return talk->client->security == 2 ? 0 : TAG; }

static int send_frame(struct talk* talk, unsigned char type, const char* body, size_t credit) {
  static unsigned char frame[HEADER + BODY_MAX + TAG];
  const size_t bytes = strlen(body), all = HEADER + bytes + tag_bytes(talk);
  memset(frame, 0, HEADER);
  for (int i = 0; i < 4; ++i) frame[i] = (unsigned char)(bytes >> 8 * i);
  frame[4] = type;
  for (int i = 0; i < 3; ++i) frame[5 + i] = (unsigned char)(credit >> 8 * i);
  memcpy(frame + HEADER, body, bytes);
  return protect(talk, &talk->sends, 1, frame, bytes) &&
         send(talk->client->socket, frame, all, MSG_NOSIGNAL) == (ssize_t)all;
}

static int receive_frame(struct talk* talk, unsigned char* type, unsigned char* body,
                         size_t* bytes) {
  static unsigned char frame[HEADER + BODY_MAX + TAG];
  const int socket = talk->client->socket;
  size_t rest;
  if (recv(socket, frame, HEADER, MSG_WAITALL) != HEADER) return 0;
  *bytes = frame[0] | (size_t)frame[1] << 8 | (size_t)frame[2] << 16 | (size_t)frame[3] << 24;
  if (*bytes > BODY_MAX) return 0;
  rest = *bytes + tag_bytes(talk);
  if (rest > 0 && recv(socket, frame + HEADER, rest, MSG_WAITALL) != (ssize_t)rest) return 0;
  *type = frame[4];
  if (!protect(talk, &talk->receives, 0, frame, *bytes)) return 0;
  memcpy(body, frame + HEADER, *bytes);
  return 1;
}

int second_client_exchange(const struct second_client* client, const char* message,
                           unsigned char* answer, size_t* answer_bytes) {
  struct talk talk = {.client = client};
  unsigned char type = 0;
  size_t owed = 0;
  make_psk(&talk);
  if (!shake_hands(&talk)) return 1;
  if (!receive_frame(&talk, &type, answer, answer_bytes) || type != 2) return 2;
  if (client->type_wrong != 0 && !send_frame(&talk, (unsigned char)client->type_wrong, "", 0))
    return 3;
  if (!send_frame(&talk, 1, message, client->credit_wrong)) return 3;
  for (unsigned i = 0; i < client->answers; ++i) {
    if (!receive_frame(&talk, &type, answer, answer_bytes) || type != 1) return 4;
    owed += HEADER + *answer_bytes;
    if (owed < CREDIT / 4) continue;
    if (!send_frame(&talk, 4, "", owed)) return 5;
    owed = 0;
  }
  return send_frame(&talk, 3, "", owed) ? 0 : 6;
}
