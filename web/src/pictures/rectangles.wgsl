// Rectangles in units of the picture, snapped to whole pixels. `canvas::raster` does the same on the processor.

struct View {
    scale: vec2f,
    offset: vec2f,
    screen: vec2f,
    unused: vec2f,
}

@group(0) @binding(0) var<uniform> view: View;

struct Corner {
    @builtin(position) position: vec4f,
    @location(0) @interpolate(flat) colour: vec4f,
}

@vertex
fn corner(
    @builtin(vertex_index) index: u32,
    @location(0) rectangle: vec4f,
    @location(1) colour: vec4f,
) -> Corner {
    let start = floor(rectangle.xy * view.scale + view.offset + 0.5);
    let end = max(floor((rectangle.xy + rectangle.zw) * view.scale + view.offset + 0.5), start + 1.0);
    let pixel = select(start, end, vec2<bool>((index & 1u) == 1u, (index & 2u) == 2u));
    let place = pixel / view.screen * 2.0 - 1.0;
    return Corner(vec4f(place.x, -place.y, 0.0, 1.0), colour);
}

@fragment
fn fill(corner: Corner) -> @location(0) vec4f {
    return corner.colour;
}
