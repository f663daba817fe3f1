// Three kernels of the project's first prototype, in today's dialect: a norm in F16, a histogram with atomics in LDS and
// memory, and attention over gathered keys on matrix instructions.
#include "abi.h"

// The two layouts of a 16 x 16 x 16 tile, as the prototype had them: rows of A, columns of B, both as pointers.
#if TILE_LAYOUT == 11
enum { AB_N = 16 };
DEV int ab_k(int i) { return i; }
DEV int acc_row(int r) { return 2 * r + (int)(lane() >> 4); }
#else
enum { AB_N = 8 };
DEV int ab_k(int i) { return 8 * (int)(lane() >> 4) + i; }
DEV int acc_row(int r) { return r + 8 * (int)(lane() >> 4); }
#endif
struct FragA { f16 h[AB_N]; };
typedef FragA FragB;
struct Acc { float c[8]; };
struct Rows { const f16* p; };
template<class F> DEV Rows tile_rows(F f) { return Rows{f((int)(lane() & 15))}; }
DEV void tile_load(FragA& f, const Rows& r, int k0) {
  UNROLL for (int i = 0; i < AB_N; i += 8) {
    const f16x8 v = *(const f16x8*)(r.p + k0 + ab_k(i));
    UNROLL for (int j = 0; j < 8; j++) f.h[i + j] = v.v[j];
  }
}
DEV void tile_zero(Acc& a) { UNROLL for (int i = 0; i < 8; i++) a.c[i] = 0.f; }
DEV void tile_mma(Acc& d, const FragA& a, const FragB& b) { wmma_f16(d.c, a.h, b.h); }
template<class F> DEV void tile_each(Acc& a, F f) {
  UNROLL for (int r = 0; r < 8; r++) f(acc_row(r), (int)(lane() & 15), a.c[r]);
}

struct RmsArgs { f16* y; const f16* x; const f16* w; u32 n; float eps; };
// y[row][i] = x[row][i] * rsqrt(mean(x[row]^2) + eps) * w[i]; n a multiple of 8; one workgroup a row.
KERNEL(256, rmsnorm_f16, RmsArgs) {
  LDS_ARR(float, red, 8);
  const f16x8* xr = (const f16x8*)(a.x + (u64)bidx() * a.n);
  f16x8* yr = (f16x8*)(a.y + (u64)bidx() * a.n);
  float ss = 0.f;
  for (u32 i = tid(); i < a.n / 8; i += 256) {
    f16x8 v = xr[i];
    for (int j = 0; j < 8; j++) { float f = to_f32(v.v[j]); ss = fma_(f, f, ss); }
  }
  float r = rsqrt_(block_sum<256>(ss, red) / a.n + a.eps);
  for (u32 i = tid(); i < a.n / 8; i += 256) {
    f16x8 v = xr[i], g = ((const f16x8*)a.w)[i], o;
    for (int j = 0; j < 8; j++) o.v[j] = to_f16(to_f32(v.v[j]) * r * to_f32(g.v[j]));
    yr[i] = o;
  }
}

struct HistogramArgs { u32* bins; const u32* v; float* fsum; u32 n; u32 unused; };
KERNEL(256, hist_u8, HistogramArgs) {
  LDS_ARR(u32, h, 256);
  h[tid()] = 0;
  barrier();
  u32 base = bidx() * 1024;
  float s = 0.f;
  for (u32 i = tid(); i < 1024; i += 256)
    if (base + i < a.n) { u32 x = a.v[base + i]; lds_atomic_add(&h[x & 255], 1u); s += 1.f; }
  barrier();
  if (h[tid()]) atomic_add(&a.bins[tid()], h[tid()]);
  s = wave_sum(s);
  if (lane() == 0) atomic_add(a.fsum, s);
}

struct ReverseArgs { float* y; const float* x; u32 n; u32 unused; };
// Each row of n floats backwards through LDS of n * 4 bytes, sized at launch.
KERNEL(256, reverse_dyn, ReverseArgs) {
  LDS_DYN(float, buf);
  u64 row = (u64)bidx() * a.n;
  for (u32 i = tid(); i < a.n; i += 256) buf[i] = a.x[row + i];
  barrier();
  for (u32 i = tid(); i < a.n; i += 256) a.y[row + i] = buf[a.n - 1 - i];
}

enum { HEADS = 16, HD = 256, TK = 128, VH = 64, NT = 128 };
struct AttnArgs { float* out; const f16* q; const f16* k; const f16* v; const int* idx; int nsel; float scale; };
struct AttnLds {
  f16   q[HEADS][HD + 8];
  float s[HEADS][TK + 4];
  f16   p[HEADS][TK + 8];
  f16   vt[HD][VH + 8];       // V, transposed: 64 keys at a time
  int   id[TK];
  float alpha[HEADS], linv[HEADS];
};
// One workgroup a token: 16 heads share one KV row; idx[token][nsel] names the keys (negative: none).
KERNEL(128, attn_gather_f16, AttnArgs) {
  LDS_BIG(AttnLds, L);
  const u32 t = tid(), w = wave();
  const u64 tok = bidx();
  const f16x8* qg = (const f16x8*)(a.q + tok * HEADS * HD);
  for (u32 i = t; i < HEADS * HD / 8; i += NT) *(f16x8*)&L.q[i / (HD / 8)][i % (HD / 8) * 8] = qg[i];
  Acc o[4];
  UNROLL for (int j = 0; j < 4; j++) tile_zero(o[j]);
  float m = -1e30f, l = 0.f;                       // of row t/8, alike in its 8 threads
  const Rows qrows = tile_rows([&](int r) { return &L.q[r][0]; });
  const Rows prows = tile_rows([&](int r) { return &L.p[r][0]; });
  for (int k0 = 0; k0 < a.nsel; k0 += TK) {
    int mine = k0 + (int)t < a.nsel ? a.idx[tok * a.nsel + k0 + t] : -1;
    L.id[t] = mine;
    barrier();
    for (int nt = 0; nt < 2; nt++) {
      const int n0 = (2 * w + nt) * 16;
      Rows krows = tile_rows([&](int c) { int r = L.id[n0 + c]; return a.k + (u64)(r < 0 ? 0 : r) * HD; });
      Acc s; tile_zero(s);
      #pragma unroll 4
      for (int kk = 0; kk < HD; kk += 16) {
        FragA x; FragB b;
        tile_load(x, qrows, kk); tile_load(b, krows, kk);
        tile_mma(s, x, b);
      }
      tile_each(s, [&](int r, int c, float& e) { L.s[r][n0 + c] = L.id[n0 + c] < 0 ? -1e30f : e * a.scale; });
    }
    barrier();
    {
      const int row = t / 8, c0 = t % 8;
      float mx = m;
      for (int j = 0; j < 16; j++) mx = fmax_(mx, L.s[row][c0 + 8 * j]);
      mx = fmax_(mx, shfl_xor<1>(mx)); mx = fmax_(mx, shfl_xor<2>(mx)); mx = fmax_(mx, shfl_xor<4>(mx));
      float al = exp2_((m - mx) * 1.4426950408889634f), sum = 0.f;
      for (int j = 0; j < 16; j++) {
        float sc = L.s[row][c0 + 8 * j];
        float e = sc <= -1e30f ? 0.f : exp2_((sc - mx) * 1.4426950408889634f);
        f16 h = to_f16(e);
        L.p[row][c0 + 8 * j] = h;
        sum += to_f32(h);
      }
      sum += shfl_xor<1>(sum); sum += shfl_xor<2>(sum); sum += shfl_xor<4>(sum);
      l = l * al + sum; m = mx;
      if (c0 == 0) L.alpha[row] = al;
    }
    for (int half = 0; half < TK / VH; half++) {
      barrier();
      for (u32 i = t; i < VH * HD / 8; i += NT) {
        int key = i % VH, d = i / VH * 8, r = L.id[half * VH + key];
        f16x8 x = *(const f16x8*)(a.v + (u64)(r < 0 ? 0 : r) * HD + d);
        UNROLL for (int j = 0; j < 8; j++) L.vt[d + j][key] = x.v[j];
      }
      barrier();
      if (half == 0)
        UNROLL for (int j = 0; j < 4; j++) tile_each(o[j], [&](int r, int, float& e) { e *= L.alpha[r]; });
      #pragma unroll 2
      for (int kk = 0; kk < VH; kk += 16) {
        FragA x; tile_load(x, prows, half * VH + kk);
        UNROLL for (int j = 0; j < 4; j++) {
          FragB b;
          tile_load(b, tile_rows([&](int c) { return &L.vt[(w * 4 + j) * 16 + c][0]; }), kk);
          tile_mma(o[j], x, b);
        }
      }
    }
    barrier();
  }
  if (t % 8 == 0) L.linv[t / 8] = l > 0.f ? rcp_(l) : 0.f;
  barrier();
  UNROLL for (int j = 0; j < 4; j++)
    tile_each(o[j], [&](int r, int c, float& e) {
      a.out[(tok * HEADS + r) * HD + (w * 4 + j) * 16 + c] = e * L.linv[r];
    });
}
